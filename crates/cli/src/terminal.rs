//! What people see: aligned tables, numbers, durations.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Every line on stderr is to be JSON.
static JSON: AtomicBool = AtomicBool::new(false);

pub fn set_json() {
    JSON.store(true, Relaxed);
}

pub fn is_json() -> bool {
    JSON.load(Relaxed)
}

/// A line on stderr for whoever started the command: how it goes.
pub fn tell(line: &str) {
    match is_json() {
        true => tracing::info!("{line}"),
        false => eprintln!("{line}"),
    }
}

/// The same, of something that isn't as it should be.
pub fn warn(line: &str) {
    match is_json() {
        true => tracing::warn!("{line}"),
        false => eprintln!("{line}"),
    }
}

/// Rows under headings; columns whose cells are all numbers are right-aligned.
pub struct Grid {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    pub fn new(headings: &[&'static str]) -> Grid {
        Grid { headings: headings.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn print(&self) {
        print!("{}", self.text());
    }

    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.headings[column].chars().count()]).max().unwrap_or(0)
        };
        let is_number = |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '—');
        let columns: Vec<(usize, bool)> = (0..self.headings.len())
            .map(|column| (width(column), !self.rows.is_empty() && self.rows.iter().all(|row| is_number(&row[column]))))
            .collect();
        let line = |cells: &[&str]| {
            let padded = cells.iter().zip(&columns).map(|(cell, (width, right))| match right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_string() + "\n"
        };
        let mut text = line(&self.headings);
        for row in &self.rows {
            text.push_str(&line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        text
    }
}

/// `1,234,567`
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `512 B`, `1.5 MB` (powers of 1000).
pub fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{number} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// `120 ms`, `4.2 s`, `3 min`, `2.5 h`
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s * 1000.0),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

/// Are there eyes on stderr, and a terminal that can redraw?
pub fn is_live() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_numbers_stand_right() {
        let mut grid = Grid::new(&["table", "rows"]);
        grid.row(["shop.orders".into(), thousands(1_234_567)]);
        grid.row(["a".into(), thousands(7)]);
        assert_eq!(grid.text(), "table             rows\nshop.orders  1,234,567\na                    7\n");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!((thousands(999), thousands(1000)), ("999".into(), "1,000".into()));
        assert_eq!((bytes(999), bytes(1_500_000)), ("999 B".into(), "1.5 MB".into()));
        assert_eq!((seconds(0.12), seconds(4.25), seconds(300.0)), ("120 ms".into(), "4.2 s".into(), "5 min".into()));
    }
}
