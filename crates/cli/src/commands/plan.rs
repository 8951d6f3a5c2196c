//! `tidewire plan`: what becomes of a Debezium connector.

use crate::args::Plan as Args;
use crate::connector::{self, Fate, Plan};
use crate::exit::Answer;
use crate::local;
use crate::terminal::Grid;
use tidewire_change::{Error, Result};

pub fn run(args: &Args) -> Result<Answer> {
    let json = local::text(&args.connector)?;
    let plan =
        connector::plan(&json, args.brokers.as_deref()).map_err(|e| e.context(args.connector.display().to_string()))?;
    if args.json {
        println!("{}", as_json(&plan));
    } else {
        print(&plan);
    }
    match &args.out {
        Some(path) if path.exists() && !args.force => {
            return Err(Error::invalid(format!("{} is there already", path.display()))
                .hint("--out FILE writes elsewhere, --force writes over it"));
        }
        Some(path) => {
            std::fs::write(path, &plan.yaml).map_err(|e| Error::io(e, path.display()))?;
            if !args.json {
                println!(
                    "\nwrote {}\nnext:  export DATABASE_PASSWORD='…'  and  tidewire check {}",
                    path.display(),
                    path.display()
                );
            }
        }
        None if !args.json => print!("\n{}", plan.yaml),
        None => {}
    }
    match plan.refused() {
        0 => Ok(Answer::Yes),
        n => Err(Error::invalid(format!("{n} properties can't be honoured, and without them other data is written"))
            .hint("they are marked NO above; take them out of the JSON when you can do without them")),
    }
}

pub fn told(fate: &Fate) -> (&'static str, &str) {
    match fate {
        Fate::Becomes(what) => ("becomes", what),
        Fate::Same(what) => ("is so", what),
        Fate::NoMeaning(why) => ("no meaning", why),
        Fate::Refused(why) => ("NO", why),
        Fate::Unknown => ("unknown", "this version doesn't know it; it does nothing here"),
    }
}

fn print(plan: &Plan) {
    let mut grid = Grid::new(&["property", "", "what becomes of it"]);
    for (property, fate) in &plan.fates {
        let (word, text) = told(fate);
        grid.row([property.clone(), word.into(), text.into()]);
    }
    grid.print();
}

fn as_json(plan: &Plan) -> serde_json::Value {
    let fates = plan.fates.iter().map(|(property, fate)| {
        let (word, text) = told(fate);
        serde_json::json!({"property": property, "fate": word, "what": text})
    });
    serde_json::json!({"properties": fates.collect::<Vec<_>>(), "refused": plan.refused(), "configuration": plan.yaml})
}
