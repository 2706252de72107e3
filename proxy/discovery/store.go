package discovery

import "k8s.io/client-go/tools/cache"

// store is the store of a [follower]. It keeps nothing: from each object that comes it reads which
// one it is (K), and what is needed of it (V), and passes both on.
type store[K comparable, V any] struct {
	read func(obj any) (K, V, error)
	// set is called with each object that was added or changed, gone with each that was deleted, and
	// listed with all that there are, at first and after a gap.
	set    func(K, V)
	gone   func(K)
	listed func(map[K]V)
	// heard is noted when something was taken; it may be nil.
	heard *heard
}

var _ cache.ReflectorBookmarkStore = store[string, string]{}

// Add implements [cache.ReflectorStore].
func (s store[K, V]) Add(obj any) error { return s.Update(obj) }

// Update implements [cache.ReflectorStore].
func (s store[K, V]) Update(obj any) error {
	key, value, err := s.read(obj)
	if err != nil {
		return err
	}
	s.set(key, value)
	return s.Bookmark("")
}

// Delete implements [cache.ReflectorStore].
func (s store[K, V]) Delete(obj any) error {
	key, _, err := s.read(obj)
	if err != nil {
		return err
	}
	s.gone(key)
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
	s.listed(listed)
	return s.Bookmark("")
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
