package limits

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// from is a client of a user at another address of the loopback, with a new connection for each
// request.
func (r *rig) from(host, user string) client {
	r.Helper()
	cfg := r.proxy.RESTConfig(plane.RESTConfig(user))
	cfg.Dial = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}).DialContext
	client := client{ask.MustNew(r, cfg, 0)}
	r.Cleanup(client.HTTP.CloseIdleConnections)
	return client
}

// TestOneAddressTakesAllConnections, and keeps them alive; others come in all the same.
func TestOneAddressTakesAllConnections(t *testing.T) {
	const most = 50
	r := newRig(t, "--max-connections", fmt.Sprint(most))
	r.must(warm(r))
	for range most {
		conn, err := r.encrypted(0, "http/1.1")
		r.must(err)
		_, err = io.WriteString(conn, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
		r.must(err)
		_, err = http.ReadResponse(bufio.NewReader(conn), nil)
		r.must(err)
	}
	served := 0
	for i := range most / 4 {
		client := r.from(fmt.Sprintf("127.0.1.%d", i+1), controlplane.Admin)
		a, err := client.Get(t.Context(), "/api/v1/namespaces/team-a/configmaps?resourceVersion=0")
		r.must(err)
		if a.Code == http.StatusOK {
			served++
		}
	}
	if served != most/4 {
		t.Errorf("%d of %d were served", served, most/4)
	}
	r.say("all %d connections are one address's, and alive: %d of %d clients of other addresses were served at once; %.0f connections were closed for them, %.0f new ones",
		most, served, most/4, r.ended("room"), r.ended("full"))
}

// TestStrangersTakeAllWatches: made-up tokens of several addresses open watches whose bodies come a
// byte at a time, and kube-apiserver, as behind a load balancer of HTTP/1.1, waits for their end;
// the watches of known callers open.
func TestStrangersTakeAllWatches(t *testing.T) {
	const most, stall = 80, 3 * time.Second
	r := newRig(t, "--max-long-running-requests", fmt.Sprint(most), "--stall-timeout", stall.String())
	r.must(warm(r))
	r.hop.OnRequest(func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Query().Get("labelSelector") != "strangers" {
			return false
		}
		_, _ = io.Copy(io.Discard, req.Body)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refused, ended := make(chan int, most), make(chan time.Duration, most)
	for i := range most {
		conn, err := r.encrypted(i, "http/1.1")
		r.must(err)
		_, err = fmt.Fprintf(conn, "GET /api/v1/configmaps?watch=true&labelSelector=strangers HTTP/1.1\r\nHost: x\r\n"+
			"Authorization: Bearer made-up-%d\r\nContent-Length: 1000000\r\n\r\n", i)
		r.must(err)
		begun := time.Now()
		go func() {
			for ctx.Err() == nil {
				if _, err := conn.Write([]byte("a")); err != nil {
					return
				}
				select {
				case <-time.After(stall / 3):
				case <-ctx.Done():
				}
			}
		}()
		go func() {
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				_ = res.Body.Close()
				if res.StatusCode == http.StatusTooManyRequests {
					refused <- i
					return
				}
			}
			ended <- time.Since(begun)
		}()
	}
	open := 0
	for range most - most/8 {
		client := r.from("127.0.0.1", controlplane.Admin)
		if open%2 == 1 {
			client = r.from("127.0.0.1", controlplane.Alice) // one caller may have half
		}
		res, err := client.Open(ctx, http.MethodGet, "/api/v1/namespaces/team-a/pods?watch=true", nil)
		r.must(err)
		t.Cleanup(func() { _ = res.Body.Close() })
		if res.StatusCode != http.StatusOK {
			t.Errorf("watch %d of a known caller: %s", open, res.Status)
			break
		}
		open++
	}
	// And lists, which have places of their own.
	_, err := r.via.await(ctx, "/api/v1/configmaps?resourceVersion=0")
	r.must(err)
	// The strangers' end, although something comes all the time.
	gone, longest := 0, time.Duration(0)
	r.must(poll.Try(t.Context(), patience, between, "the strangers' watches end", func() error {
		for {
			select {
			case took := <-ended:
				gone, longest = gone+1, max(longest, took)
				continue
			case <-refused:
				gone++
				continue
			default:
			}
			if gone == most {
				return nil
			}
			return fmt.Errorf("%d of %d have ended", gone, most)
		}
	}))
	r.say("%d watches of made-up tokens of 8 addresses, a byte of body now and then, of --max-long-running-requests %d: "+
		"known callers opened %d meanwhile; the strangers' ended within %.1f s (--stall-timeout %v)",
		most, most, open, longest.Seconds(), stall)
}
