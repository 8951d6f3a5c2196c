//! One table, step by step.

use crate::support::*;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::Config;

#[tokio::test]
async fn rows_are_upserted_and_every_reader_sees_them() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let columns = vec![column("id", Kind::Int32, 1), column("name", Kind::Text, 2)];
    let schema = schema("t", columns, Key::Columns(vec![0]));
    let mut sink = open(&config).await;
    let make = |op, commit, id: &str, name: &str| change(&schema, op, commit, 0, row(&[Some(id), Some(name)]));
    write(
        &mut sink,
        &schema,
        vec![make(Op::Create, 1, "1", "a"), make(Op::Create, 2, "2", "b"), make(Op::Create, 3, "3", "c")],
    )
    .await;
    sink.commit(&progress(&schema, 3, 3)).await.unwrap();
    write(
        &mut sink,
        &schema,
        vec![make(Op::Update, 4, "2", "B"), make(Op::Delete, 5, "3", "c"), make(Op::Update, 1, "1", "old")],
    )
    .await;
    sink.commit(&progress(&schema, 6, 5)).await.unwrap();
    let expected: Vec<Values> = [["1", "a"], ["2", "B"]].map(|r| r.map(|v| Some(v.to_string())).to_vec()).to_vec();
    assert_eq!(inspect(&config, &schema, None).await, (expected.clone(), Position::end_of(5)));
    validator::check(&folder_of(&config, &schema));
    readers::check(&config, &schema, &expected);
}
