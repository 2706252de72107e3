package cluster

import (
	"context"
	"strconv"
	"time"
)

// SameTimeline implements [snapshot.Config.SameTimeline]. A timeline is the history of etcd: when etcd is restored from an
// older backup, another timeline begins. A watch that has reached revision last sent something at heardAt, and then broke
// off. SameTimeline reports whether it can prove that etcd has not lost any revision up to this one.
//
// The proof is a Lease. Each API server holds one, and renews it every ten seconds. Before etcd is restored, the API servers
// are stopped. An API server that starts again becomes a new holder of its Lease. So the timeline is the same if a Lease still
// has the holder that it had at heardAt, and was written at the revision or later. Such a Lease was written in one of two
// ways:
//
//   - By an API server that has run since heardAt. Then etcd was not restored.
//   - Before the backup from which etcd was restored. Then the backup has everything up to the revision.
//
// If same is false, proofMayCome reports whether another call in a few seconds may return true.
//
// For example, a watch at revision 100 last sent something at 12:00:
//
//	the holder was first seen   its Lease was written at   same    proofMayCome
//	at 11:00                    revision 103               true    not used
//	at 11:00                    revision 90                false   true: the holder may soon write its Lease again
//	at 11:59:30, or at 12:01    revision 103               false   false: such a holder proves nothing (see minHolderAge)
func (c *Cluster) SameTimeline(ctx context.Context, revision uint64, heardAt time.Time) (same, proofMayCome bool) {
	if !c.newHolderAtStart.Load() {
		return false, false
	}
	leases := c.readLeases(ctx)
	if leases.err != nil {
		c.config.Log.DebugContext(ctx, "the API servers' Leases cannot be read", "error", leases.err)
		return false, false
	}
	c.holdersMu.Lock()
	defer c.holdersMu.Unlock()
	for holder, written := range leases.revisions {
		firstSeen, known := c.holderSince[holder]
		if known && heardAt.Sub(firstSeen) >= minHolderAge {
			same = same || written >= revision
			proofMayCome = true // such a holder writes its Lease every ten seconds
		}
	}
	return same, proofMayCome
}

// minHolderAge is the least time from when a holder was first seen until heardAt. Without this margin, SameTimeline could
// trust a new holder after listproxy was suspended. When listproxy runs again, it may first see the new holder, and only then
// read an event that the watch had sent long before. This event sets heardAt to the time of the reading, after the holder was
// first seen.
const minHolderAge = time.Minute

// leaseRead is one read of the API servers' Leases.
type leaseRead struct {
	began     time.Time
	revisions map[string]uint64 // the revision at which each holder last wrote its Lease
	err       error
}

// readLeases reads the Leases. Concurrent calls share a read, but no call gets a read that began before it.
func (c *Cluster) readLeases(ctx context.Context) leaseRead {
	called := time.Now() // before the lock, so that this call shares a read that begins while it waits for the lock
	c.leaseReadMu.Lock()
	defer c.leaseReadMu.Unlock()
	if c.lastLeaseRead.began.After(called) {
		return c.lastLeaseRead
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	read := leaseRead{began: time.Now(), revisions: map[string]uint64{}}
	_, read.err = c.leases.from.list(ctx, c.leases.path, c.leases.labels, func(lease *object) {
		written, err := strconv.ParseUint(lease.Metadata.ResourceVersion, 10, 64)
		if holder := readHolder(lease); err == nil && holder != "" {
			read.revisions[holder] = written
		}
	})
	c.lastLeaseRead = read
	return read
}
