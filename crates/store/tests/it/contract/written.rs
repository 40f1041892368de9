//! Contents of files that agents wrote are recognised by their hash.

use sluice_core::{AgentName, HoldId};
use sluice_store::{FileOrigin, RecordWrittenFiles};

use crate::engines::everywhere;

fn agent(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

#[test]
fn the_first_agent_that_wrote_a_content_is_remembered_by_its_hash() {
    everywhere(|world| {
        let note = |number: u128, name: &str, path: &str, hash: &str| {
            let files = vec![(path.to_owned(), hash.to_owned())];
            let written = RecordWrittenFiles { hold: HoldId::from_bits(number), agent: agent(name), files };
            world.wait(world.store.record_written_files(written)).unwrap();
        };
        let origin = |hash: &str| world.wait(world.store.file_origin(hash.to_owned())).unwrap();
        note(1, "clerk", "/a", "aa");
        note(2, "other", "/b", "aa");
        note(3, "other", "/b", "bb");
        assert_eq!(origin("aa"), Some(FileOrigin { path: "/a".into(), agent: agent("clerk") }));
        assert_eq!(origin("bb"), Some(FileOrigin { path: "/b".into(), agent: agent("other") }));
        assert_eq!(origin("cc"), None);
    });
}
