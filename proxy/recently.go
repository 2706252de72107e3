package proxy

import "sync"

// recentlyKept is how many keys each of the two generations of a [recently] holds.
const recentlyKept = 8192

// recently is a bounded map that forgets what was added longest ago: at least the last
// recentlyKept keys added are in it, at most twice as many. Its zero value is empty and ready
// for use. It is safe for concurrent use.
type recently[K comparable, V any] struct {
	mu       sync.Mutex
	young    map[K]V
	previous map[K]V
}

func (s *recently[K, V]) get(key K) (V, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.getLocked(key)
}

func (s *recently[K, V]) getLocked(key K) (V, bool) {
	if value, ok := s.young[key]; ok {
		return value, true
	}
	value, ok := s.previous[key]
	return value, ok
}

// add makes key one of the last that were added. Its value is found out if it is not there.
func (s *recently[K, V]) add(key K, find func() V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.young[key]; ok {
		return
	}
	value, ok := s.getLocked(key)
	if !ok {
		value = find()
	}
	if len(s.young) >= recentlyKept {
		s.previous, s.young = s.young, nil
	}
	if s.young == nil {
		s.young = map[K]V{}
	}
	s.young[key] = value
}

func (s *recently[K, V]) remove(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.young, key)
	delete(s.previous, key)
}
