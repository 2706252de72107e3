package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestAcceptanceIsNoted where an answer can only be had by somebody.
func TestAcceptanceIsNoted(t *testing.T) {
	identifier := newIdentifier(t)
	for _, test := range []struct {
		id     Identity
		method string
		code   int
		noted  bool
	}{
		{identify(identifier, "Bearer a"), http.MethodGet, http.StatusOK, true},
		{identify(identifier, "Bearer a"), http.MethodGet, http.StatusForbidden, true},
		{identify(identifier, "Bearer a"), http.MethodGet, http.StatusSwitchingProtocols, true},
		{identify(identifier, "Bearer a"), http.MethodGet, http.StatusUnauthorized, false},
		{identify(identifier, "Bearer a"), http.MethodOptions, http.StatusOK, false},
		{Identity{}, http.MethodGet, http.StatusOK, false},
		{Identity{}, http.MethodGet, http.StatusSwitchingProtocols, true},
	} {
		noted := false
		r, err := http.NewRequestWithContext(t.Context(), test.method, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		noteAcceptance(withAcceptance(r, func() { noted = true }), test.id, test.code)
		if noted != test.noted {
			t.Errorf("%v %s %d: %t", test.id.Known(), test.method, test.code, noted)
		}
		noteAcceptance(r, test.id, test.code) // nothing is to be done
	}
}

// TestUploadOfAStranger must come as a whole within the limit, that of a known caller need not.
func TestUploadOfAStranger(t *testing.T) {
	for _, test := range []struct {
		known, long, later bool
		whole              bool
	}{
		{},
		{known: true, whole: true},
		{known: true, long: true, whole: true},
		{known: true, later: true, whole: true},
	} {
		overBothPipes(t, func(t *testing.T, http2 bool) {
			guard := newStallGuard(stallLimit)
			got := make(chan int, 1)
			client, _ := servePipe(t, guard.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if test.known && !test.later {
					callerKnown(r.Context(), test.long)
				}
				n := 0
				for {
					_, err := io.ReadFull(r.Body, make([]byte, 1))
					if err != nil {
						break
					}
					if n++; n == 2 && test.known {
						callerKnown(r.Context(), test.long)
					}
				}
				got <- n
			})), http2)
			body, write := io.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://pipe/x", body)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = 10
			go func() {
				if res, err := client.Do(r); err == nil {
					_ = res.Body.Close()
				}
				_ = body.Close()
			}()
			go func() {
				defer func() { _ = write.Close() }()
				for i := range 10 {
					if _, err := fmt.Fprint(write, i); err != nil {
						return
					}
					time.Sleep(stallLimit * 2 / 5)
				}
			}()
			n := <-got
			if whole := n == 10; whole != test.whole || n == 0 {
				t.Errorf("%+v: %d bytes came", test, n)
			}
			cancel()
			synctest.Wait()
			time.Sleep(stallLimit)
		})
	}
}
