//! Two gateways on one PostgreSQL: what one of them connects or ends, the other one takes up while it runs.

use std::sync::Arc;

use sluice_core::ServiceName;
use sluice_core::nodes::{NodeService, ServiceKind};
use sluice_gateway::{Gateway, nodes};
use sluice_testkit::postgres::TestDatabase;

use super::test_gateway::{GmailTestGateway, ana, gmail};

/// What a node says of its connected services.
async fn connected_at(gw: &Arc<Gateway>) -> Vec<NodeService> {
    nodes::report(gw).await.unwrap();
    let known = gw.store.known_nodes().await.unwrap();
    let own = known.into_iter().find(|node| node.name == *gw.store.node()).unwrap();
    own.report.services.into_iter().filter(|service| service.kind == ServiceKind::Connected).collect()
}

#[tokio::test]
async fn what_one_node_connects_or_ends_the_other_takes_up_while_it_runs() {
    let Some(database) = TestDatabase::fresh() else { return };
    let house = GmailTestGateway::with(3, &format!("database: {{url: \"{}\"}}\n", database.url())).await;
    let (folder, other) = house.beside("other").await;
    assert_eq!(connected_at(&other).await, []);

    house.connect().await;
    other.connections.follow().await.unwrap();
    let email = NodeService { name: ServiceName::new("email").unwrap(), kind: ServiceKind::Connected, ready: true };
    assert_eq!(connected_at(&other).await, [email]);
    // It makes a copy of its own, with the credential that was given at the first.
    other.connections.sync_now(&gmail()).await.unwrap();
    assert_eq!(other.connections.show(&gmail()).await.unwrap().messages, Some(3));
    let copy = folder.path().join("data/replicas/gmail");
    assert!(copy.exists());

    // Paused and resumed at the first.
    house.gw.connections.pause(&gmail(), ana()).await.unwrap();
    other.connections.follow().await.unwrap();
    assert!(other.connections.sync_now(&gmail()).await.is_err(), "what is paused is not copied by any node");
    house.gw.connections.resume(&gmail(), ana()).await.unwrap();
    other.connections.follow().await.unwrap();
    other.connections.sync_now(&gmail()).await.unwrap();

    // Ended at the first: nothing of it is left at the second.
    house.gw.connections.disconnect(&gmail(), ana()).await.unwrap();
    assert!(copy.exists());
    other.connections.follow().await.unwrap();
    assert_eq!(connected_at(&other).await, []);
    assert!(!copy.exists(), "the copy of the other node goes with the connection");
    assert!(other.connections.sync_now(&gmail()).await.is_err());

    // And connected again.
    house.connect().await;
    other.connections.follow().await.unwrap();
    assert_eq!(connected_at(&other).await.len(), 1);
}
