package discovery

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// store is the store of a [follower], or of several. From each object that comes it reads which one it is (K) and
// what is needed of it (V). It keeps that, and tells what has changed.
type store[K, V comparable] struct {
	read func(obj any) (K, V, error)
	// known is what was read; nil until there was a list. mu guards it.
	known *map[K]V
	mu    sync.Locker
	// also, unless it is nil, is called with mu held, whenever something came: a list, or an object.
	also func(list bool, key K)
	// changed is called afterwards, without mu: after each list, and with each object that is not as it
	// was.
	changed func(change[K, V])
	// heard is noted when something was taken; it may be nil.
	heard *heard
}

// change is what is not as it was: the values, before and now, of each key whose value changed, came
// or went.
type change[K, V comparable] struct {
	was, is map[K]V
	// list: it is by a list, the first one or one that comes after a gap.
	list, first bool
}

var _ cache.ReflectorBookmarkStore = store[string, string]{}

// Add implements [cache.ReflectorStore].
func (s store[K, V]) Add(obj any) error { return s.Update(obj) }

// Update implements [cache.ReflectorStore].
func (s store[K, V]) Update(obj any) error {
	key, is, err := s.read(obj)
	if err != nil {
		return err
	}
	c := change[K, V]{was: map[K]V{}, is: map[K]V{key: is}}
	known := s.lock(false, key)
	was, found := known[key]
	if found {
		c.was[key] = was
	}
	if known != nil { // a list comes first
		known[key] = is
	}
	s.mu.Unlock()
	if !found || was != is {
		s.changed(c)
	}
	return s.Bookmark("")
}

// Delete implements [cache.ReflectorStore].
func (s store[K, V]) Delete(obj any) error {
	key, _, err := s.read(obj)
	if err != nil {
		return err
	}
	known := s.lock(false, key)
	was := known[key]
	delete(known, key)
	s.mu.Unlock()
	s.changed(change[K, V]{was: map[K]V{key: was}})
	return s.Bookmark("")
}

// Replace implements [cache.ReflectorStore].
func (s store[K, V]) Replace(objs []any, _ string) error {
	listed := make(map[K]V, len(objs))
	for _, obj := range objs {
		key, value, err := s.read(obj)
		if err != nil {
			return err
		}
		listed[key] = value
	}
	var none K
	before := s.lock(true, none)
	// Several followers may have one store: from here on another may change what is listed.
	c := change[K, V]{was: without(before, listed), is: without(listed, before), list: true, first: before == nil}
	*s.known = listed
	s.mu.Unlock()
	s.changed(c)
	return s.Bookmark("")
}

// lock begins to take what came, and returns what was known before.
func (s store[K, V]) lock(list bool, key K) map[K]V {
	s.mu.Lock()
	if s.also != nil {
		s.also(list, key)
	}
	return *s.known
}

// without returns what is in all, and not the same in same.
func without[K, V comparable](all, same map[K]V) map[K]V {
	rest := map[K]V{}
	for key, value := range all {
		if other, found := same[key]; !found || other != value {
			rest[key] = value
		}
	}
	return rest
}

// Resync implements [cache.ReflectorStore]; there is nothing to do.
func (store[K, V]) Resync() error { return nil }

// Bookmark implements [cache.ReflectorBookmarkStore]. A bookmark comes after all that was pending.
func (s store[K, V]) Bookmark(string) error {
	if s.heard != nil {
		s.heard.note()
	}
	return nil
}
