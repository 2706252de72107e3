// Package clients runs real clients (client-go's informers and pager, kubectl) directly and through
// listproxy at the same time, while writers create, change and delete objects and connections
// break. In the end, all must know the same, and what the API server has.
//
// A ledger knows the state at every revision: one watch for each resource, directly at the API
// server, from before the first write on. Lists that are read page by page are compared with it.
package clients
