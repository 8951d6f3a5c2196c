//! Whether a configuration can be honoured, and what is wrong with it.

use super::secrets::{is_looked_up, masked, unmasked};
use super::store::Store;
use super::{answers, Plan, Properties, Refusal, Verdict, Worker};
use serde_json::Value;

/// What becomes of the properties, if anything does, and what is wrong with which.
type Judged = (Option<Plan>, Vec<(String, String)>);

impl Worker {
    /// The configuration as it is kept, if it can be honoured.
    pub(super) fn prepared(
        &self,
        name: &str,
        mut config: Properties,
        before: Option<&Properties>,
    ) -> Result<(Properties, Plan), Refusal> {
        if !Store::is_fit(name) {
            return Err(invalid(&["name: must be 1 to about 200 characters, none of them a control character".into()]));
        }
        if config.get("name").is_some_and(|given| given != name) {
            return Err(Refusal::bad(format!(
                "Connector name configuration ({}) doesn't match connector name ({name})",
                config["name"]
            )));
        }
        config.insert("name".into(), name.to_owned());
        let config = unmasked(config, before)?;
        let (plan, mut faults) = self.judged(&config)?;
        if let Some(plan) = &plan {
            faults.extend(self.clash(name, plan));
        }
        match plan {
            Some(plan) if faults.is_empty() => {
                for fate in plan.fates.iter().filter(|fate| fate.verdict == Verdict::Unknown) {
                    tracing::warn!(
                        connector = name,
                        property = fate.property,
                        "a property that isn't known does nothing"
                    );
                }
                Ok((config, plan))
            }
            _ => Err(invalid(
                &faults.into_iter().map(|(property, why)| format!("{property}: {why}")).collect::<Vec<_>>(),
            )),
        }
    }

    fn judged(&self, config: &Properties) -> Result<Judged, Refusal> {
        let mut faults = Vec::new();
        for (property, _) in config.iter().filter(|(_, value)| is_looked_up(value)) {
            faults.push((property.clone(), "no configuration providers are asked: give the value itself".to_owned()));
        }
        for property in answers::REQUIRED.iter().filter(|property| config.get(**property).is_none_or(String::is_empty))
        {
            faults.push(((*property).to_owned(), answers::MISSING.to_owned()));
        }
        let plan = match self.maker.plan(config) {
            Ok(plan) => Some(plan),
            Err(error) => {
                faults.push(("connector.class".into(), super::refusal::told(&error)));
                None
            }
        };
        let refused = plan.iter().flat_map(|plan| &plan.fates).filter(|fate| fate.verdict == Verdict::Refused);
        faults.extend(refused.map(|fate| (fate.property.clone(), fate.what.clone())));
        Ok((plan, faults))
    }

    /// Another connector that has the same topics or the same slot.
    fn clash(&self, name: &str, plan: &Plan) -> Option<(String, String)> {
        let others = self.read(|connectors| {
            let others = connectors.iter().filter(|(other, _)| *other != name);
            others.filter_map(|(_, entry)| entry.connector.kept()).collect::<Vec<_>>()
        });
        others.into_iter().find_map(|other| {
            let theirs = self.maker.plan(&other.config).ok()?;
            let whose = format!("is that of the connector {} already: each needs its own", other.name);
            match () {
                () if theirs.pipeline == plan.pipeline => Some(("topic.prefix".into(), whose)),
                () if theirs.slot == plan.slot => Some(("slot.name".into(), whose)),
                () => None,
            }
        })
    }

    pub(super) fn validate(&self, plugin: &str, config: Properties) -> Result<Value, Refusal> {
        let class = config.get("connector.class").cloned().unwrap_or_default();
        let is_it = |name: &str| plugin == name || name.rsplit('.').next() == Some(plugin);
        let alias = class.strip_suffix("Connector").unwrap_or(&class).to_owned();
        if !is_it(&class) && !is_it(&alias) {
            return Err(Refusal::bad(format!("Included connector type {class} does not match request type {plugin}")));
        }
        let name = config.get("name").cloned().unwrap_or_default();
        let before = self.get(&name).ok().map(|(_, kept)| kept.config);
        let config = unmasked(config, before.as_ref())?;
        let (plan, mut faults) = self.judged(&config)?;
        if let Some(plan) = plan.as_ref().filter(|_| !name.is_empty()) {
            faults.extend(self.clash(&name, plan));
        }
        Ok(answers::validated(&class, &masked(&config), plan.as_ref(), &faults))
    }
}

/// In Connect's words.
fn invalid(faults: &[String]) -> Refusal {
    Refusal::bad(format!(
        "Connector configuration is invalid and contains the following {} error(s):\n{}\nYou can also find the above list of \
         errors at the endpoint `/connector-plugins/{{connectorType}}/config/validate`",
        faults.len(),
        faults.join("\n")
    ))
}
