package authz

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/proxy/authn"
)

// entryBytes is how much of a decision's key one unit of the cache's bound
// pays for.
const entryBytes = 512

// decisionCache remembers reviews that said yes, up to a bound.
//
// Invariants: a decision is found only under the whole key it was added with, within its validity,
// which begins when its review was sent, and in the epoch in which its review began. Losing one is
// always allowed.
type decisionCache struct {
	// epoch grows by one with every flush.
	epoch atomic.Uint64
	// epochs of the reviews that said yes, by the keys of decisions.
	epochs *expiringCache[uint64]
}

// find returns the yes for key, if there is one that counts at now.
func (c *decisionCache) find(key string, now time.Time) (Right, bool) {
	r, ok := c.epochs.find(key, now)
	if !ok || r.value != c.epoch.Load() {
		return Right{}, false
	}
	return Right{allowed: true, epoch: r.value, counts: r.validity}, true
}

// add remembers a yes for key as long as it is valid, unless there was a flush since epoch, in
// which its review began. The cache may drop it at once.
func (c *decisionCache) add(key string, epoch uint64, counts validity, now time.Time) {
	if epoch == c.epoch.Load() {
		c.epochs.add(key, epoch, 1+int64(len(key)/entryBytes), counts, now)
	}
}

// decisionKey returns the full key of a decision: who asks, and every
// attribute with its length before it, so that no two questions share one.
func decisionKey(id authn.Identity, a Attributes) string {
	var space [entryBytes]byte
	caller := id.Key()
	key := append(space[:0], caller[:]...)
	for _, field := range [...]string{
		a.Verb, a.Group, a.Version, a.Resource, a.Subresource, a.Namespace, a.Name, a.LabelSelector, a.FieldSelector,
	} {
		key = binary.AppendUvarint(key, uint64(len(field)))
		key = append(key, field...)
	}
	return string(key)
}
