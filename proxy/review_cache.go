package proxy

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"
)

// entryBytes is how much of a decision's key one unit of the cache's bound
// pays for.
const entryBytes = 512

// decision is a remembered yes. Ristretto finds it by two hashes of its key,
// so it says itself what it is an answer to, how long it holds and from which
// epoch it is.
type decision struct {
	key     string
	epoch   uint64
	expires time.Time
}

// decisionCache remembers decisions, within a bound, on top of ristretto.
//
// Invariants: a decision is found only under the whole key it was added with,
// before it expires, and in the epoch in which its review began. Losing one
// is always allowed; ristretto drops what it has no room or time for.
type decisionCache struct {
	// epoch is counted up by every flush.
	epoch atomic.Uint64

	// mu is held for reading around every use of entries and for writing
	// around its end: ristretto's Close races with its Get and Set.
	mu      sync.RWMutex
	entries *ristretto.Cache[string, decision] // nil when closed
}

// newDecisionCache returns an empty cache of at most size units.
func newDecisionCache(size int64) (*decisionCache, error) {
	first, second := maphash.MakeSeed(), maphash.MakeSeed()
	return newHashedDecisionCache(size, func(key string) (uint64, uint64) {
		return maphash.String(first, key), maphash.String(second, key)
	})
}

// newHashedDecisionCache is newDecisionCache with a choice of hashes.
func newHashedDecisionCache(size int64, hash func(string) (uint64, uint64)) (*decisionCache, error) {
	entries, err := ristretto.NewCache(&ristretto.Config[string, decision]{
		NumCounters:        10 * size, // as its documentation advises
		MaxCost:            size,
		BufferItems:        64, // as its documentation advises
		KeyToHash:          hash,
		IgnoreInternalCost: true, // our unit is an entry, not a byte
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make a cache of %d entries: %w", size, err)
	}
	return &decisionCache{entries: entries}, nil
}

// has says whether the answer for key is known to be yes.
func (c *decisionCache) has(key string, now time.Time) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.entries == nil {
		return false
	}
	d, ok := c.entries.Get(key)
	return ok && d.key == key && d.epoch == c.epoch.Load() && now.Before(d.expires)
}

// add remembers a yes for key until it expires, unless there was a flush since
// epoch, in which its review began. It may come to nothing.
func (c *decisionCache) add(key string, epoch uint64, expires, now time.Time) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	ttl := expires.Sub(now)
	if c.entries == nil || epoch != c.epoch.Load() || ttl <= 0 {
		return
	}
	d := decision{key: key, epoch: epoch, expires: expires}
	cost := 1 + int64(len(key)/entryBytes)
	// The cache's own expiry only makes room; has looks at the decision's.
	_ = c.entries.SetWithTTL(key, d, cost, ttl)
}

// flush makes all that was decided so far unusable. Ristretto lets go of it
// when it expires.
func (c *decisionCache) flush() { c.epoch.Add(1) }

// close lets go of everything and stops ristretto's goroutines. Afterwards the
// cache is empty and stays so.
func (c *decisionCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Close()
	c.entries = nil
}

// decisionKey returns the full key of a decision: who asks, and every
// attribute with its length before it, so that no two questions share one.
func decisionKey(id Identity, a Attributes) string {
	var space [entryBytes]byte
	key := append(space[:0], id.key[:]...)
	for _, field := range [...]string{
		a.Verb, a.Group, a.Version, a.Resource, a.Namespace, a.Name, a.LabelSelector, a.FieldSelector,
	} {
		key = binary.AppendUvarint(key, uint64(len(field)))
		key = append(key, field...)
	}
	return string(key)
}

// flightKey returns the key under which equal questions of one epoch share a
// review. The epoch has a fixed length, so it stays unambiguous.
func flightKey(epoch uint64, key string) string {
	return string(binary.BigEndian.AppendUint64(nil, epoch)) + key
}
