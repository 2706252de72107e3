// Package cluster knows what the cluster serves, and tells when that changes.
//
// [Cluster] says which resources there are ([Cluster.Lookup]), and turns every change that makes memory
// invalid into a [snapshot.Invalidation]. It follows who answers for a group (routes.go), custom
// resources (definitions.go), what is built in (builtins.go), which API servers there are (servers.go),
// and whether they agree on how they store a resource (storageversions.go). [WatchRBAC] tells when
// rights may have changed. All of these are followed in one way (reflector.go), and read one object at a time
// (api.go).
package cluster
