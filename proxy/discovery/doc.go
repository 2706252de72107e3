// Package discovery knows what the cluster serves, and tells when that changes.
//
// [Catalog] says which resources there are and who serves them. [Schemas] follows the definitions
// of custom resources. [Servers] follows the API servers behind the upstream and their versions,
// [storageVersions] whether they agree on how they store a resource. [WatchRBAC] tells when rights
// may have changed. [Cluster] joins all of these, and turns every change that makes memory invalid
// into a [snapshot.Invalidation].
package discovery
