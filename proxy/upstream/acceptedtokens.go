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

func (a *acceptedTokens) get(token authn.Key) (inflight.ShareKey, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.getLocked(token)
}

func (a *acceptedTokens) getLocked(token authn.Key) (inflight.ShareKey, bool) {
	if share, ok := a.young[token]; ok {
		return share, true
	}
	share, ok := a.previous[token]
	return share, ok
}

// add makes token one of the last that were accepted, if its share has room. find, which returns
// the share, is called only if the token is not remembered yet.
func (a *acceptedTokens) add(token authn.Key, find func() inflight.ShareKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.young[token]; ok {
		return
	}
	share, ok := a.getLocked(token)
	if !ok {
		share = find()
	}
	if a.tokens[share] >= acceptedOfShare {
		return
	}
	if len(a.young) >= acceptedKept {
		a.previous, a.young, a.tokens = a.young, nil, nil
	}
	if a.young == nil {
		a.young, a.tokens = map[authn.Key]inflight.ShareKey{}, map[inflight.ShareKey]int{}
	}
	a.young[token] = share
	a.tokens[share]++
}

func (a *acceptedTokens) remove(token authn.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if share, ok := a.young[token]; ok {
		delete(a.young, token)
		if a.tokens[share]--; a.tokens[share] == 0 {
			delete(a.tokens, share)
		}
	}
	delete(a.previous, token)
}
