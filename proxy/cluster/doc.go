// Package cluster follows what the cluster serves, and reports its changes.
//
// [Cluster] has the catalog of resources ([Cluster.Lookup]), and calls [Config].Invalidate for every change that
// makes memory invalid. It also reports that rights were taken away.
//
//   - cluster.go: the catalog
//   - routes.go: the servers of each group
//   - definitions.go: custom resources; builtins.go: built-in resources
//   - servers.go: the API servers; serverversion.go: their versions; leaseholders.go: what their Leases say about etcd
//   - storageversions.go: the versions in which the API servers store a resource
//   - rbac.go: rights
//   - reflector.go follows the objects of one resource; api.go reads them, one object at a time
package cluster
