package upstream

import (
	"encoding/binary"
	"testing"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/inflight"
)

// TestAcceptedTokens: the tokens that were accepted last are there, and there is an end to them.
func TestAcceptedTokens(t *testing.T) {
	var s acceptedTokens
	token := func(i int) (key authn.Key) {
		binary.BigEndian.PutUint64(key[:], uint64(i))
		return key
	}
	share := func(i int) inflight.ShareKey { return inflight.ShareKey(token(i % 4)) }
	has := func(i int) bool {
		got, ok := s.get(token(i))
		if ok && got != share(i) {
			t.Errorf("token %d has the share %x", i, got)
		}
		return ok
	}
	add := func(i int) { s.add(token(i), func() inflight.ShareKey { return share(i) }) }
	for i := range 10 * acceptedKept {
		add(i)
		if !has(i) || i > 0 && !has(i-1) {
			t.Fatalf("token %d was forgotten at once", i)
		}
	}
	for i := 9 * acceptedKept; i < 10*acceptedKept; i++ {
		if !has(i) {
			t.Fatalf("token %d is among the last and was forgotten", i)
		}
	}
	if n := len(s.young) + len(s.previous); n > 2*acceptedKept {
		t.Errorf("there are %d tokens", n)
	}
	const last = 10*acceptedKept - 1
	add(last + 1)
	s.add(token(last), func() inflight.ShareKey { return inflight.ShareKey{1} })
	if !has(last) {
		t.Error("added again, and not there")
	}
	s.remove(token(last))
	if has(last) {
		t.Error("removed, and still there")
	}
}

// TestTokensOfOneShare: an account that makes tokens does not make those of others be forgotten,
// and has room again when some of its own are refused.
func TestTokensOfOneShare(t *testing.T) {
	var s acceptedTokens
	token := func(of byte, i int) authn.Key {
		key := authn.Key{of}
		binary.BigEndian.PutUint64(key[1:], uint64(i))
		return key
	}
	add := func(of byte, i int) { s.add(token(of, i), func() inflight.ShareKey { return inflight.ShareKey{of} }) }
	add('b', 0)
	for i := range 10 * acceptedKept {
		add('a', i)
	}
	if _, ok := s.get(token('b', 0)); !ok {
		t.Error("the token of another account was forgotten")
	}
	if n := len(s.young) + len(s.previous); n != acceptedOfShare+1 {
		t.Errorf("there are %d tokens", n)
	}
	s.remove(token('a', 0))
	s.remove(token('a', 0))
	for i := range 2 {
		add('a', acceptedKept+i)
		if _, ok := s.get(token('a', acceptedKept+i)); ok != (i == 0) {
			t.Errorf("%d tokens after one was refused: the last is there: %t", i+1, ok)
		}
	}
}
