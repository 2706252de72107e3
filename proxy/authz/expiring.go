package authz

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"
)

// remembered is a value in an expiringCache. Ristretto finds it by two hashes of its key, so the
// value has the whole key and its own validity.
type remembered[V any] struct {
	key      string
	validity validity
	value    V
}

// expiringCache remembers values until they expire, within a bound, on top of ristretto.
//
// Invariants: a value is found only under the whole key it was added with, and before its validity
// ends, which is checked when it is read ([clock.Age]). Losing one is always allowed; ristretto
// drops values that it has no room or time for, and frees expired ones some seconds later.
//
// It is safe for concurrent use.
type expiringCache[V any] struct {
	// mu is held for reading around every use of entries and for writing around its end:
	// ristretto's Close races with its Get and Set.
	mu      sync.RWMutex
	entries *ristretto.Cache[string, remembered[V]] // nil when closed
	// evicted counts the values that were dropped before they expired.
	evicted atomic.Uint64
}

// newExpiringCache returns an empty cache of at most size units.
func newExpiringCache[V any](size int64) (*expiringCache[V], error) {
	first, second := maphash.MakeSeed(), maphash.MakeSeed()
	return newHashedExpiringCache[V](size, func(key string) (uint64, uint64) {
		return maphash.String(first, key), maphash.String(second, key)
	})
}

// newHashedExpiringCache is newExpiringCache with a choice of hashes.
func newHashedExpiringCache[V any](size int64, hash func(string) (uint64, uint64)) (*expiringCache[V], error) {
	c := &expiringCache[V]{}
	evict := func(i *ristretto.Item[remembered[V]]) {
		if i.Value.validity.valid(time.Now()) {
			c.evicted.Add(1)
		}
	}
	entries, err := ristretto.NewCache(&ristretto.Config[string, remembered[V]]{
		NumCounters:        10 * size, // as its documentation advises
		MaxCost:            size,
		BufferItems:        64, // as its documentation advises
		KeyToHash:          hash,
		IgnoreInternalCost: true, // our unit is an entry, not a byte
		OnEvict:            evict,
		OnReject:           evict,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make a cache of %d entries: %w", size, err)
	}
	c.entries = entries
	return c, nil
}

// stats returns how many units are in use, and how many values had to go, or could not come in,
// before they expired.
func (c *expiringCache[V]) stats() (used int64, evicted uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.entries != nil {
		used = c.entries.MaxCost() - c.entries.RemainingCost()
	}
	return used, c.evicted.Load()
}

// get returns the value for key, if there is one that holds at now.
func (c *expiringCache[V]) get(key string, now time.Time) (V, bool) {
	r, ok := c.find(key, now)
	return r.value, ok
}

// find is get, and also returns how long the value holds.
func (c *expiringCache[V]) find(key string, now time.Time) (remembered[V], bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.entries == nil {
		return remembered[V]{}, false
	}
	r, ok := c.entries.Get(key)
	if !ok || r.key != key || !r.validity.valid(now) {
		return remembered[V]{}, false
	}
	return r, true
}

// add remembers a value, of so many units, for as long as counts says. It may be dropped at once.
func (c *expiringCache[V]) add(key string, value V, cost int64, counts validity, now time.Time) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	left := counts.left(now)
	if c.entries == nil || left <= 0 {
		return
	}
	// The cache's own expiry uses a clock that may stand still, and only makes room; get checks the
	// value's validity.
	_ = c.entries.SetWithTTL(key, remembered[V]{key: key, validity: counts, value: value}, cost, left)
}

// close lets go of everything and stops ristretto's goroutines. Afterwards the cache is empty and
// stays so.
func (c *expiringCache[V]) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries != nil {
		c.entries.Close()
		c.entries = nil
	}
}
