package upstream

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/listproxy/listproxy/proxy/authn"
)

const (
	// pendingFor is how long others wait, at most, for the answer to the first request with a token.
	pendingFor = time.Second
	// pendingWaits bounds the requests that wait, of all tokens together, and pendingWaitsOfToken those
	// of one.
	pendingWaits        = 4096
	pendingWaitsOfToken = 256
)

// pendingTokens has the tokens of which the API server is just being asked, by a first request with
// each. Further requests with such a token wait until the answer says whether it was accepted:
// clients that connect anew open many watches at once, and each that is forwarded is the API
// server's for minutes, on a connection of its own. The zero value is empty and ready for use. It
// is safe for concurrent use.
type pendingTokens struct {
	mu      sync.Mutex
	tokens  map[authn.Key]*pendingToken
	waiting int
}

// pendingToken is one token of which the API server is asked.
type pendingToken struct {
	until   time.Time     // nobody waits longer
	over    chan struct{} // closed when nobody need wait any more
	waiting int
}

// enter makes a request that asks the first one with its token, if there is none. Else it returns
// what the request must wait for; nil if it must not wait.
func (p *pendingTokens) enter(token authn.Key, asks bool) (first, wait *pendingToken) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait = p.tokens[token]
	switch {
	case wait == nil && !asks:
	case wait == nil:
		if p.tokens == nil {
			p.tokens = map[authn.Key]*pendingToken{}
		}
		first = &pendingToken{until: time.Now().Add(pendingFor), over: make(chan struct{})}
		p.tokens[token] = first
	case p.waiting >= pendingWaits || wait.waiting >= pendingWaitsOfToken:
		return nil, nil
	default:
		p.waiting++
		wait.waiting++
	}
	return first, wait
}

// await waits until nobody need wait for a token any more, or ctx ends.
func (p *pendingTokens) await(ctx context.Context, of *pendingToken) {
	timer := time.NewTimer(time.Until(of.until))
	defer timer.Stop()
	select {
	case <-of.over:
	case <-timer.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
	of.waiting--
}

// leave ends the wait for a token: for this first request only, if it is not nil.
func (p *pendingTokens) leave(token authn.Key, first *pendingToken) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := p.tokens[token]; of != nil && (first == nil || of == first) {
		delete(p.tokens, token)
		close(of.over)
	}
}

// AwaitAcceptance is called with a request of a caller who is not known ([Transports.Caller]). If
// the API server is just being asked by another request with the same token, AwaitAcceptance waits
// for its answer, for a second at most. Afterwards the caller may be known. It must hold nothing
// meanwhile that other callers may need. over must be called when the request has ended.
func (t *Transports) AwaitAcceptance(ctx context.Context, id authn.Identity, method string, upgrade bool) (over func()) {
	if !id.BringsToken() {
		return func() {}
	}
	// Only a first request whose answer says something about its token is waited for.
	first, wait := t.pending.enter(id.Key(), !upgrade && method != http.MethodOptions)
	if wait != nil {
		t.pending.await(ctx, wait)
	}
	if first == nil {
		return func() {}
	}
	return func() { t.pending.leave(id.Key(), first) }
}
