package attacks

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// holdPatience is how long an attacker tries to get a connection.
const holdPatience = 5 * time.Second

// holdAll opens so many connections from one address, a few at a time. take says what came of one:
// it is held if it returns what keeps it until the attack ends.
func (s *side) holdAll(ctx context.Context, connections, atOnce int, ready func(), take func(conn net.Conn) (said string, keep func())) pressed {
	var (
		counts        tally
		trying, holds sync.WaitGroup
		places        = make(chan struct{}, atOnce)
	)
	for range connections {
		places <- struct{}{}
		counts.begin()
		trying.Go(func() {
			defer func() { <-places }()
			dialing, cancel := context.WithTimeout(ctx, holdPatience)
			defer cancel()
			conn, err := s.dial(dialing, crowdAddress, http1)
			if err != nil {
				counts.end("not connected")
				return
			}
			said, keep := take(conn)
			counts.end(said)
			if keep == nil {
				_ = conn.Close()
				return
			}
			holds.Go(func() {
				defer func() { _ = conn.Close() }()
				keep()
			})
		})
	}
	trying.Wait()
	ready()
	<-ctx.Done()
	holds.Wait()
	return counts.pressed()
}

// trickle is a body that has a byte now, and another one each time that every has gone by.
type trickle struct {
	ctx   context.Context
	every time.Duration
	// begins is told when the body is read for the first time: the header has been sent then.
	begins func()
	begun  bool
}

func (b *trickle) Read(p []byte) (int, error) {
	if b.begun {
		select {
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		case <-time.After(b.every):
		}
	}
	if !b.begun {
		b.begins()
	}
	b.begun = true
	p[0] = ' '
	return 1, nil
}

// uploads sends so many requests with each of some tokens, from two addresses, over HTTP/1.1. Their
// bodies do not come: a byte now and then. (Before net/http answers over HTTP/1.1 it reads what is
// left of a body.) Those that are answered are not sent again. It is ready when all are sent, and
// none waits for a place.
func uploads(each int, every time.Duration, method, target string, tokens func(s *side) []string) crowdAttack {
	return func(ctx context.Context, s *side, ready func()) pressed {
		var (
			counts tally
			all    sync.WaitGroup
			sent   atomic.Int64
			from   = tokens(s)
		)
		for i, token := range from {
			client := s.client1([]string{crowdAddress, accompliceAddress}[i%2])
			defer client.CloseIdleConnections()
			s.get(ctx, client, token, anyList(s, i)) // so that it is accepted, if it can be
			for range each {
				counts.begin()
				all.Go(func() {
					once := sync.OnceFunc(func() { sent.Add(1) })
					defer once()
					req, err := http.NewRequestWithContext(ctx, method, s.url+target, &trickle{ctx: ctx, every: every, begins: once})
					if err != nil {
						counts.end(err.Error())
						return
					}
					req.Header.Set("Authorization", "Bearer "+token)
					req.Header.Set("Content-Type", "application/json")
					res, err := client.Do(req)
					switch {
					case ctx.Err() != nil:
						counts.end("not answered")
						return
					case err != nil:
						counts.end("no answer")
						return
					}
					defer func() { _ = res.Body.Close() }()
					said := fmt.Sprintf("answered %d", res.StatusCode)
					// What is answered may be held nevertheless: until the answer has ended.
					if _, err := io.Copy(io.Discard, res.Body); err != nil && ctx.Err() != nil {
						said += ", not ended"
					}
					counts.end(said)
				})
			}
		}
		s.placed(func() int { return int(sent.Load()) }, each*len(from))
		places := ""
		if s.proxy != nil {
			places = fmt.Sprintf("%.0f places taken: ", s.gauge(ctx, "listproxy_inflight_requests"))
		}
		ready()
		<-ctx.Done()
		all.Wait()
		p := counts.pressed()
		p.says = places + counted(p.counts)
		return p
	}
}

// placed waits until all of so many requests were sent or have ended, and none waits for its turn
// in listproxy.
func (s *side) placed(sent func() int, all int) {
	s.Helper()
	s.eventually("the attack is in place", func() bool {
		return sent() == all && (s.proxy == nil || s.gauge(s.Context(), "listproxy_inflight_waiting") == 0)
	})
}

// stalled opens so many streams with each token, a hundred on a connection, whose answers are not
// read: the window of each is 0. It is ready when each has a header or was turned away.
func stalled(each int, target func(s *side) string, tokens func(s *side) []string) crowdAttack {
	return func(ctx context.Context, s *side, ready func()) pressed {
		const onOne = 100 // kube-apiserver's bound
		var (
			counts tally
			all    sync.WaitGroup
			from   = tokens(s)
			path   = target(s)
		)
		for i, token := range from {
			client := s.client(crowdAddress, nil)
			s.get(ctx, client, token, anyList(s, i)) // so that it is accepted
			client.CloseIdleConnections()
			for opened := 0; opened < each; opened += onOne {
				streams := min(onOne, each-opened)
				for range streams {
					counts.begin()
				}
				all.Go(func() { s.stalledConnection(ctx, &counts, streams, token, path) })
			}
		}
		s.placed(counts.ended, each*len(from))
		ready()
		<-ctx.Done()
		all.Wait()
		p := counts.pressed()
		p.says = counted(p.counts)
		return p
	}
}

// stalledConnection opens streams and reads only how their answers begin.
func (s *side) stalledConnection(ctx context.Context, counts *tally, streams int, token, path string) {
	conn, err := s.dial(ctx, crowdAddress, http2)
	if err != nil {
		for range streams {
			counts.end("not connected")
		}
		return
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, _ = io.WriteString(conn, h2.ClientPreface)
	w := &wire{framer: h2.NewFramer(conn, conn), fill: strings.NewReplacer(), opened: map[uint32]bool{}}
	w.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	w.coder = hpack.NewEncoder(&w.block)
	_ = w.framer.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 0})
	for i := range streams {
		w.headers(uint32(2*i+1), true, field{":method", "GET"}, field{":scheme", "https"}, field{":authority", "x"},
			field{":path", path}, field{"authorization", "Bearer " + token}, field{"accept", "application/json"})
	}
	answered := map[uint32]bool{}
	answer := func(stream uint32, what string) {
		if !answered[stream] {
			answered[stream] = true
			counts.end(what)
		}
	}
	for ctx.Err() == nil {
		frame, err := w.framer.ReadFrame()
		if err != nil {
			break
		}
		switch f := frame.(type) {
		case *h2.SettingsFrame:
			if !f.IsAck() {
				w.acknowledge()
			}
		case *h2.PingFrame:
			if !f.IsAck() {
				_ = w.framer.WritePing(true, f.Data)
			}
		case *h2.MetaHeadersFrame:
			answer(f.StreamID, "answered "+f.PseudoValue("status"))
		case *h2.RSTStreamFrame:
			answer(f.StreamID, "reset with "+f.ErrCode.String())
		}
	}
	for i := range streams {
		answer(uint32(2*i+1), "no answer")
	}
}

// unfinished keeps connections whose headers do not end. Each of these is nearly as long as headers
// may be.
func unfinished(connections int) crowdAttack {
	return func(ctx context.Context, s *side, ready func()) pressed {
		size := s.longestHeader(ctx)
		begin := []byte("GET /version HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("x", size))
		p := s.holdAll(ctx, connections, 8, ready, func(conn net.Conn) (string, func()) {
			_ = conn.SetWriteDeadline(time.Now().Add(holdPatience))
			if _, err := conn.Write(begin); err != nil {
				return "not taken", nil
			}
			return "held", func() { <-ctx.Done() }
		})
		p.says = fmt.Sprintf("%d of %d headers of %d kB", p.counts["held"], p.sent, size/1000)
		return p
	}
}

// longestHeader is about how long a header may be that is not refused.
func (s *side) longestHeader(ctx context.Context) int {
	least, most := 1<<10, 2<<20
	for most-least > 1<<10 {
		size := (least + most) / 2
		conn, err := s.dial(ctx, otherAddress, http1)
		s.must(err)
		_ = conn.SetDeadline(time.Now().Add(holdPatience))
		long := strings.Repeat("x", size)
		_, err = fmt.Fprintf(conn, "GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: %s\r\n\r\n", long)
		taken := false
		if err == nil {
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			taken = err == nil && res.StatusCode != http.StatusRequestHeaderFieldsTooLarge
		}
		_ = conn.Close()
		if taken {
			least = size
		} else {
			most = size
		}
	}
	return least
}
