package proxy

import "sync"

// recentlyKept is how many keys each of the two generations of a [recently] holds.
const recentlyKept = 8192

// recently is a bounded set that forgets what was added longest ago: at least the last
// recentlyKept keys added are in it, at most twice as many. Its zero value is empty and ready
// for use. It is safe for concurrent use.
type recently[K comparable] struct {
	mu       sync.Mutex
	young    map[K]struct{}
	previous map[K]struct{}
}

func (s *recently[K]) has(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.young[key]; ok {
		return true
	}
	_, ok := s.previous[key]
	return ok
}

func (s *recently[K]) add(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.young[key]; ok {
		return
	}
	if len(s.young) >= recentlyKept {
		s.previous, s.young = s.young, nil
	}
	if s.young == nil {
		s.young = map[K]struct{}{}
	}
	s.young[key] = struct{}{}
}

func (s *recently[K]) remove(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.young, key)
	delete(s.previous, key)
}
