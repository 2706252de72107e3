// Package cluster follows what the cluster serves, and reports changes.
//
// [Cluster] is the catalog of resources ([Cluster.Lookup]). It reports changes through [Config]: what is in memory must be
// dropped (Invalidate) or compared with the upstream (Verify), or rights were taken away (Revoked).
//
//   - cluster.go: the catalog
//   - routes.go: the server that answers for a group and version, by its APIService
//   - definitions.go: custom resources
//   - builtins.go: built-in resources
//   - servers.go: the API servers
//   - serverversion.go: the API servers' versions
//   - leaseholders.go: whether the API servers' Leases prove that etcd was not restored
//   - storageversions.go: the versions in which the API servers store a resource
//   - rbac.go: rights that are revoked
//   - reflector.go: how the objects of one resource are followed
//   - api.go: how these objects are read, one at a time
package cluster
