package cluster

import (
	"time"

	"github.com/listproxy/listproxy/snapshot"
)

// serversChanged logs that the API servers behind the upstream, or their versions, have changed. It has discovery read again and
// everything verified: new servers and versions may write the same objects in other bytes (with other defaults, new fields, or
// another encoding), without an event about them.
//
// Each API server holds a Lease that is named after its host. What a restart changes depends on the version:
//
//	1.35 and later  the API server deletes its Lease when it ends and when it starts, and makes one with another holder: two
//	                changes within a second
//	older versions  the Lease keeps its holder: only a change of /version is seen
//
// If a server is killed and does not come back, its Lease expires after an hour and is deleted. That is a change, too. A broken
// watch of Leases is not a change, since the list that follows shows what the watch has missed.
//
// If neither Leases nor /version can be read, no change of the servers is noticed. The feeds of package snapshot still notice if
// etcd was restored from a backup: after a break, each asks for the upstream's revision, and for the newest change.
func (c *Cluster) serversChanged(what string) {
	c.config.Log.Info("the API servers behind the upstream changed: what is in memory is compared with their answers",
		"change", what)
	c.wakeDiscovery()
	everything := snapshot.Scope{}
	c.config.Verify(everything)
}

// readHolder returns the holder of a Lease. It stays the same when the Lease is renewed.
func readHolder(o *object) string { return o.Spec.HolderIdentity }

// leaseChanged records when the new holder of a Lease was first seen, and reports the change.
func (c *Cluster) leaseChanged(diff change[string]) {
	c.holdersMu.Lock()
	if diff.before != nil {
		delete(c.holderSince, *diff.before)
	}
	if diff.after != nil {
		c.holderSince[*diff.after] = time.Now()
	}
	c.holdersMu.Unlock()
	switch {
	case diff.first: // the API server was there before listproxy, so nothing has changed
	case diff.after == nil:
		c.serversChanged("an API server has gone: " + diff.name)
	default:
		c.serversChanged("an API server has started: " + diff.name)
	}
}
