// Package cluster follows what the cluster serves, and reports its changes.
//
// [Cluster] has the catalog of resources ([Cluster.Lookup]), and makes a [snapshot.Invalidation] of every change that
// makes memory invalid. It follows the servers of each group (routes.go), custom resources (definitions.go), built-in
// resources (builtins.go), the API servers (servers.go), and the versions in which these store a resource
// (storageversions.go). [WatchRBAC] reports that rights were taken away. All of them use one reflector (reflector.go),
// which reads one object at a time (api.go).
package cluster
