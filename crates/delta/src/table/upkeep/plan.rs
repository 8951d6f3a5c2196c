//! Which files become one. Pure, so that its rules can be told and tested.

use crate::config::Upkeep;

/// What a plan knows of a file.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub number: u32,
    /// Struck ones, too.
    pub rows: u64,
    pub struck: u64,
    /// Of the rows that aren't struck, about.
    pub live_bytes: u64,
}

impl Facts {
    fn worn_part(&self) -> f64 {
        self.struck as f64 / self.rows.max(1) as f64
    }
}

/// `partitions` hold files in order of their numbers: files of one are never merged with those of another. `classes` are bytes below which a file is of the first class, of the second, ….
///
/// Worn files come first: readers read what is struck, too. A rewrite costs a bounded number of rows for each struck row that
/// it takes away, since a file is worn only above a part of its rows. Small files go into it at once, so that most rows are
/// written again once and not once a class; and they don't wait behind worn files.
pub fn plan(partitions: &[Vec<Facts>], classes: &[u64], rules: &Upkeep) -> Option<Vec<u32>> {
    let numbers = |files: Vec<&Facts>| files.iter().map(|file| file.number).collect();
    let struck = |files: &Vec<Facts>| files.iter().filter(|file| file.struck > 0).count();
    if partitions.iter().map(struck).sum::<usize>() > rules.vectors_max * 3 / 4 {
        let most = partitions.iter().max_by_key(|files| struck(files))?;
        let mut files: Vec<&Facts> = most.iter().filter(|file| file.struck > 0).collect();
        files.sort_by_key(|file| file.live_bytes);
        files.truncate(2 * rules.merge_files);
        return Some(numbers(files));
    }
    let first_class = classes.first().copied().unwrap_or(0);
    let is_worn = |file: &Facts| file.live_bytes >= first_class && file.worn_part() > rules.struck_part;
    let worn = worst(partitions, classes, rules, is_worn);
    worn.or_else(|| partitions.iter().find_map(|files| by_class(files, classes, rules))).map(numbers)
}

/// The same for a table for which nothing of that is due: the worst file, whatever its size, of which more than `part` is struck.
pub fn plan_fold(partitions: &[Vec<Facts>], classes: &[u64], rules: &Upkeep, part: f64) -> Option<Vec<u32>> {
    let files = worst(partitions, classes, rules, |file| file.worn_part() > part)?;
    Some(files.iter().map(|file| file.number).collect())
}

/// The file that is worn most, with small ones of its partition.
fn worst<'a>(
    partitions: &'a [Vec<Facts>],
    classes: &[u64],
    rules: &Upkeep,
    is_worn: impl Fn(&Facts) -> bool,
) -> Option<Vec<&'a Facts>> {
    let first_class = classes.first().copied().unwrap_or(0);
    let worn = partitions.iter().flat_map(|files| files.iter().map(move |file| (files, file)));
    let worn = worn.filter(|(_, file)| is_worn(file));
    let (files, worst) = worn.max_by(|a, b| a.1.worn_part().total_cmp(&b.1.worn_part()))?;
    let small = files.iter().filter(|file| file.live_bytes < first_class && file.number != worst.number);
    let mut wanted = with_room(small, settled(classes).saturating_sub(worst.live_bytes), 2 * rules.merge_files);
    wanted.push(worst);
    wanted.sort_by_key(|file| file.number);
    Some(wanted)
}

/// Many files of one class, or enough of them for a file that is settled.
fn by_class<'a>(files: &'a [Facts], classes: &[u64], rules: &Upkeep) -> Option<Vec<&'a Facts>> {
    let mut above = 0;
    for below in classes {
        let of_class = files.iter().filter(|file| (above..*below).contains(&file.live_bytes));
        let bytes: u64 = of_class.clone().map(|file| file.live_bytes).sum();
        let count = of_class.clone().count();
        if count >= rules.merge_files.max(2) || (count > 1 && bytes >= settled(classes)) {
            return Some(with_room(of_class, settled(classes), 2 * rules.merge_files));
        }
        above = *below;
    }
    None
}

/// From so many bytes on a file is merged for its struck rows alone: one merge brings its files there, and none goes on for
/// longer than about twice this takes.
fn settled(classes: &[u64]) -> u64 {
    classes.last().map_or(0, |top| top.saturating_mul(2))
}

/// The first of the files, until they have so many bytes: two at least, `most` at most.
fn with_room<'a>(files: impl Iterator<Item = &'a Facts>, bytes: u64, most: usize) -> Vec<&'a Facts> {
    let mut taken = 0;
    let room = |file: &&Facts| {
        let is_room = taken < bytes;
        taken += file.live_bytes;
        is_room
    };
    files.take_while(room).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(facts: &[(u64, u64)]) -> Vec<Facts> {
        let file = |(number, (live_bytes, struck)): (usize, &(u64, u64))| Facts {
            number: number as u32,
            rows: 100,
            struck: *struck,
            live_bytes: *live_bytes,
        };
        facts.iter().enumerate().map(file).collect()
    }

    fn planned(facts: &[(u64, u64)]) -> Option<Vec<u32>> {
        plan(&[files(facts)], &[10, 100], &Upkeep { merge_files: 3, ..Upkeep::default() })
    }

    #[test]
    fn a_worn_file_is_written_anew_together_with_the_small_ones_before_these_are_many() {
        assert_eq!(planned(&[(150, 20), (150, 0)]), None, "not worn yet, and of the last class");
        assert_eq!(
            planned(&[(150, 21), (150, 30), (5, 0), (5, 90), (50, 0)]),
            Some(vec![1, 2, 3]),
            "the worst of them"
        );
        assert_eq!(planned(&[(250, 30), (5, 0)]), Some(vec![0]), "a file that is large enough doesn't grow");
        assert_eq!(planned(&[(5, 99), (5, 99)]), None, "small ones go by their number");
    }

    #[test]
    fn files_of_a_class_are_merged_when_they_are_many_or_make_a_file_of_the_last_size() {
        assert_eq!(planned(&[(5, 0), (50, 0), (5, 0), (5, 0), (50, 0)]), Some(vec![0, 2, 3]));
        assert_eq!(planned(&[(50, 0), (50, 0)]), None);
        assert_eq!(planned(&[(99, 0), (99, 0), (99, 0), (99, 0)]), Some(vec![0, 1, 2]), "enough for one file");
        let fine = plan(&[files(&[(5, 0), (6, 0)])], &[10, 100], &Upkeep { merge_files: 1, ..Upkeep::default() });
        assert_eq!(fine, Some(vec![0, 1]), "one file is never merged with nothing");
        assert_eq!(plan(&[files(&[(5, 50)])], &[], &Upkeep { struck_part: 1.0, ..Upkeep::default() }), None);
    }

    #[test]
    fn files_of_two_partitions_are_never_merged() {
        let (mut one, two) = (files(&[(5, 0), (5, 0), (150, 30)]), files(&[(5, 0), (5, 0), (5, 0)]));
        let two: Vec<Facts> = two.into_iter().map(|file| Facts { number: file.number + 10, ..file }).collect();
        let rules = Upkeep { merge_files: 3, ..Upkeep::default() };
        assert_eq!(plan(&[one.clone(), two.clone()], &[10, 100], &rules), Some(vec![0, 1, 2]));
        one[2].struck = 0;
        assert_eq!(plan(&[one, two], &[10, 100], &rules), Some(vec![10, 11, 12]));
    }

    #[test]
    fn at_rest_the_worst_file_of_any_size_goes_with_small_ones_and_none_that_is_hardly_struck() {
        let fold = |facts: &[(u64, u64)], part| plan_fold(&[files(facts)], &[10, 100], &Upkeep::default(), part);
        assert_eq!(fold(&[(150, 2), (150, 5), (5, 0)], 0.01), Some(vec![1, 2]));
        assert_eq!(fold(&[(150, 2), (5, 90), (5, 0), (50, 0)], 0.01), Some(vec![1, 2]));
        assert_eq!(fold(&[(150, 1), (5, 1)], 0.01), None);
        assert_eq!(fold(&[(150, 1), (5, 0)], 0.0), Some(vec![0, 1]), "by hand");
        assert_eq!(fold(&[(150, 0), (5, 0)], 0.0), None);
    }

    #[test]
    fn too_many_vectors_for_readers_come_before_all_else() {
        let rules = Upkeep { merge_files: 1, vectors_max: 4, ..Upkeep::default() };
        let found = plan(&[files(&[(900, 1), (7, 1), (8, 1), (9, 1), (500, 90)])], &[10, 100], &rules);
        assert_eq!(found, Some(vec![1, 2]));
    }
}
