package cluster

import (
	"time"

	"github.com/listproxy/listproxy/snapshot"
)

// serversChanged logs that the API servers behind the upstream, or their versions, have changed. description says what has changed.
// Then serversChanged wakes followDiscovery, and calls [Config].Verify for all objects in memory, since new servers and versions may
// write the same objects in other bytes (with other defaults, new fields, or another encoding), without an event about them.
//
// Each API server holds a Lease that is named after its host. When an API server is restarted, serversChanged is called for:
//
//	1.35 and later  the deletion of the Lease (when the API server ends, or else when it starts again), and the new Lease, which
//	                has another holder
//	older versions  a change of /version, if any; the Lease keeps its holder
//
// If an API server is killed and does not come back, its Lease expires after an hour and is deleted. serversChanged is then called
// as well. It is not called when a watch of Leases breaks off, since the next list shows what the watch has missed.
//
// If neither Leases nor /version can be read, no change of the servers is noticed. It is still noticed if etcd was restored from a
// backup: whenever the watch of a feed (package snapshot) breaks off, the feed asks the upstream for its revision, and for the
// newest change.
func (c *Cluster) serversChanged(description string) {
	c.config.Log.Info("the API servers behind the upstream changed: what is in memory is compared with their answers",
		"change", description)
	c.wakeDiscovery()
	everything := snapshot.Scope{}
	c.config.Verify(everything)
}

// readHolder returns the holder of a Lease. It stays the same when the Lease is renewed.
func readHolder(o *object) string { return o.Spec.HolderIdentity }

// leaseChanged records when the new holder of a Lease was first seen, and reports the change.
func (c *Cluster) leaseChanged(change change[string]) {
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
