package cluster

import (
	"time"

	"github.com/listproxy/listproxy/snapshot"
)

// serversChanged is called when the API servers behind the upstream, or their versions, have changed. description, for the log,
// says what has changed. New servers and versions may write the same objects in other bytes (with other defaults, new fields,
// or another encoding), and send no events about them. So serversChanged makes followDiscovery read again, and calls
// [Config].Verify for all objects in memory.
//
// Each API server holds a Lease that is named after its host. How a restart is noticed depends on the version:
//
//   - An API server of 1.35 or later deletes its Lease when it ends. If it was killed, it deletes the Lease when it starts
//     again. At the start it makes a new Lease, with another holder. serversChanged is called for the deletion and for the new
//     Lease.
//   - An API server of an older version keeps its Lease and the holder. serversChanged is called only if /version has changed.
//
// If an API server is killed and does not come back, its Lease expires after an hour and is deleted. serversChanged is then
// called as well. It is not called when a watch of Leases breaks off, since the next list shows what the watch has missed.
//
// If neither Leases nor /version can be read, no change of the servers is noticed. A restore of etcd from a backup is noticed
// without them, by package snapshot: whenever a watch breaks off, it asks the upstream for its revision and for the newest
// change.
func (c *Cluster) serversChanged(description string) {
	c.config.Log.Info("the API servers behind the upstream changed: what is in memory is compared with their answers",
		"change", description)
	c.wakeDiscovery()
	everything := snapshot.Scope{}
	c.config.Verify(everything)
}

// readHolder returns the holder of a Lease. The holder stays the same when the Lease is renewed.
func readHolder(o *object) string { return o.Spec.HolderIdentity }

// leaseChanged records when the new holder of a Lease was first seen, and reports the change.
func (c *Cluster) leaseChanged(change valueChange[string]) {
	c.holdersMu.Lock()
	if change.before != nil {
		delete(c.holderSince, *change.before)
	}
	if change.after != nil {
		c.holderSince[*change.after] = time.Now()
	}
	c.holdersMu.Unlock()
	switch {
	case change.first: // the API server was there before listproxy, so nothing has changed
	case change.after == nil:
		c.serversChanged("an API server has gone: " + change.name)
	default:
		c.serversChanged("an API server has started: " + change.name)
	}
}
