package upstream

import (
	"sync"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/inflight"
)

const (
	// acceptedKept is how many tokens each of the two generations of [acceptedTokens] holds.
	acceptedKept = 32768
	// acceptedOfShare is how many tokens of a generation one share can have.
	acceptedOfShare = acceptedKept / 2
)

// acceptedTokens remembers the tokens that kube-apiserver has accepted, with the share of each, in
// bounded memory. It forgets the tokens that were accepted longest ago: it has at least the last
// acceptedKept, and at most twice as many. A share with acceptedOfShare of them gets no more, so an
// account that makes many JSON web tokens does not cause those of others to be forgotten. (Of opaque
// tokens each has a share of its own.) The zero value is empty and ready for use. It is safe for
// concurrent use.
type acceptedTokens struct {
	mu       sync.Mutex
	young    map[authn.Key]inflight.ShareKey
	previous map[authn.Key]inflight.ShareKey
	// tokens counts the young by share.
	tokens map[inflight.ShareKey]int
}

func (s *acceptedTokens) get(token authn.Key) (inflight.ShareKey, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.getLocked(token)
}

func (s *acceptedTokens) getLocked(token authn.Key) (inflight.ShareKey, bool) {
	if share, ok := s.young[token]; ok {
		return share, true
	}
	share, ok := s.previous[token]
	return share, ok
}

// add makes token one of the last that were accepted, if its share has room. find, which returns
// the share, is called only if the token is not remembered yet.
func (s *acceptedTokens) add(token authn.Key, find func() inflight.ShareKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.young[token]; ok {
		return
	}
	share, ok := s.getLocked(token)
	if !ok {
		share = find()
	}
	if s.tokens[share] >= acceptedOfShare {
		return
	}
	if len(s.young) >= acceptedKept {
		s.previous, s.young, s.tokens = s.young, nil, nil
	}
	if s.young == nil {
		s.young, s.tokens = map[authn.Key]inflight.ShareKey{}, map[inflight.ShareKey]int{}
	}
	s.young[token] = share
	s.tokens[share]++
}

func (s *acceptedTokens) remove(token authn.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if share, ok := s.young[token]; ok {
		delete(s.young, token)
		if s.tokens[share]--; s.tokens[share] == 0 {
			delete(s.tokens, share)
		}
	}
	delete(s.previous, token)
}
