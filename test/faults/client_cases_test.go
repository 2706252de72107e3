package faults

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// clientCases break clients, and listproxy itself.
func clientCases() []faultCase {
	cases := []faultCase{
		{name: "clients_slow_and_stuck", soaks: true, fault: (*scene).slowClients},
		{name: "listproxy_killed", runs: inFull, unserved: "no listproxy runs", fault: func(s *scene) time.Time {
			old := s.proxies.All()[0]
			old.Kill()
			s.forget(old)
			s.faultBegins()
			killed := time.Now()
			s.start()
			return killed
		}},
		// A second signal ends it, whatever is in flight: a write whose body does not come.
		{name: "listproxy_told_twice_to_end", runs: inFull, args: []string{"--shutdown-timeout", "10m"}, unserved: "no listproxy runs", fault: func(s *scene) time.Time {
			old := s.proxies.All()[0]
			s.beginWrite()
			s.must(old.Signal(syscall.SIGTERM))
			s.must(poll.Retry(s.Context(), "the end to begin", func() error {
				if !strings.Contains(old.Log(), "msg=stopping") {
					return errors.New("it has not")
				}
				return nil
			}))
			s.forget(old)
			if err := old.Stop(); err == nil || !strings.Contains(err.Error(), "signal: terminated") { // which sends it again
				s.Errorf("it ended with %v", err)
			}
			ended := time.Now()
			s.start()
			return ended
		}},
		{
			name: "listproxies_rolled", runs: inFull, replicas: 2, answersAll: true, refusesNobody: true,
			args: []string{"--shutdown-delay-duration", delay.String(), "--shutdown-timeout", "1m"}, fault: (*scene).rolled,
		},
		{name: "memory_tight", runs: inFull, shell: "export GOMEMLIMIT=24MiB", args: []string{"--cache-bytes", "256Ki"}, mayForward: true, fault: func(s *scene) time.Time {
			s.hold()
			return time.Now()
		}},
		// Not one byte can be written to any file: the kernel ends a process that tries (SIGXFSZ).
		{name: "no_disk", shell: "ulimit -f 0", fault: func(s *scene) time.Time {
			s.hop.CutAll()
			at := time.Now()
			s.hold()
			return at
		}},
	}
	return append(cases, memoryCases()...)
}

const (
	// noticed is how late a balancer hears that a replica is not ready any more.
	noticed = 1500 * time.Millisecond
	// delay is for how long replicas go on after SIGTERM: longer than that.
	delay = 15 * time.Second
)

// rolled replaces all replicas, one by one. SIGTERM comes first, and the balancer, which looks at
// /readyz, hears of it late. Meanwhile more clients read and write: one that keeps its connection, with
// HTTP/1.1, and one that makes one for each request.
func (s *scene) rolled() time.Time {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	var all sync.WaitGroup
	for _, keeps := range []bool{true, false} {
		client, leave, err := s.stranger(s.viaConfig.BearerToken, &http.Transport{DisableKeepAlives: !keeps})
		s.must(err)
		s.Cleanup(leave)
		for _, c := range []*ask.Client{client, s.via} {
			all.Go(func() {
				for clock.Sleep(ctx, 2*askEvery) {
					_, _, _ = s.Put(ctx, c, question{Collection: collections()[0], Query: ask.AnyVersion}, 0)
					asked := time.Now()
					a, err := s.Touch(ctx, c, pods, s.namespaces[0], marker)
					if ctx.Err() == nil {
						s.Tally.Heard(asked, a, err, false)
					}
				}
			})
		}
	}
	for _, old := range s.proxies.All() {
		s.start()
		s.proxies.Remove(old)
		ended := make(chan error, 1)
		go func() { ended <- old.Stop() }()
		s.must(poll.Retry(ctx, "the balancer to hear of it", func() error {
			if ready, said := old.Ready(ctx); ready {
				return errors.New(said)
			}
			return nil
		}))
		clock.Sleep(ctx, noticed)
		s.proxies.Balancer.Remove(old.Address())
		s.must(<-ended)
	}
	cancel()
	all.Wait()
	return time.Now()
}

// beginWrite sends half of a write, and returns when listproxy has begun to read it.
func (s *scene) beginWrite() {
	s.Helper()
	conn, err := dial(s.proxies.All()[0].Address(), s.viaConfig.CAData, 0)
	s.must(err)
	s.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n", configMaps.Path(s.namespaces[0]), s.viaConfig.BearerToken)
	s.must(err)
	if status, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(status, "HTTP/1.1 100 ") {
		s.Fatalf("the write is not awaited: %s, %v", status, err)
	}
	_, err = fmt.Fprint(conn, "{")
	s.must(err)
}

const (
	slowClients  = 10
	stuckClients = 20
	// asked is how many lists each of them asks for at once: more than the buffers on the way hold.
	asked = 200
)

// slowClients ask for many lists, and read little or nothing of them.
func (s *scene) slowClients() time.Time {
	s.besideSlow(pods.Path(""), s.viaConfig.BearerToken, func() {
		s.hold()
		s.calm("beside slow and stuck clients")
	})
	return time.Now()
}

// besideSlow does something while clients, who all have this token, are slow and stuck with lists
// of any version.
func (s *scene) besideSlow(path, token string, do func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	var all sync.WaitGroup
	for i := range slowClients + stuckClients {
		conn, err := dial(s.proxies.All()[0].Address(), s.viaConfig.CAData, i)
		s.must(err)
		all.Go(func() {
			defer func() { _ = conn.Close() }()
			ended := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer ended()
			all.Go(func() {
				for range asked {
					_, err := fmt.Fprintf(conn, "GET %s?%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n",
						path, ask.AnyVersion, token)
					if err != nil {
						return
					}
				}
			})
			if i < slowClients {
				for clock.Sleep(ctx, 2*pollEvery) {
					if _, err := io.CopyN(io.Discard, conn, 512); err != nil {
						return
					}
				}
			}
			<-ctx.Done()
		})
	}
	do()
	cancel()
	all.Wait()
}

// dial connects to listproxy as a client with little room, from one of several addresses.
func dial(address string, ca []byte, i int) (net.Conn, error) {
	const addresses = 8
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%addresses))}}
	conn, err := from.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetReadBuffer(4 << 10); err != nil {
			return nil, err
		}
	}
	secure := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
	return secure, secure.Handshake()
}
