package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// clientCases break clients, and listproxy itself.
func clientCases() []faultCase {
	cases := []faultCase{
		{name: "clients_slow_and_stuck", fault: (*scene).slowClients},
		{name: "listproxy_killed", unserved: "no listproxy runs", fault: func(s *scene) time.Time {
			old := s.proxies.All()[0]
			old.Kill()
			s.forget(old)
			s.breaks()
			killed := time.Now()
			s.start()
			return killed
		}},
		{name: "listproxies_rolled", replicas: 2, answersAll: true, args: []string{"--shutdown-timeout", "1m"}, fault: func(s *scene) time.Time {
			for _, old := range s.proxies.All() {
				s.start()
				s.forget(old)
				// As endpoints and --shutdown-delay-duration do it: those who dial now already go
				// elsewhere.
				poll.Pause(s.Context(), max(dialled, *duration))
				s.must(old.Stop())
			}
			return time.Now()
		}},
		{name: "memory_tight", shell: "export GOMEMLIMIT=24MiB", args: []string{"--cache-bytes", "256Ki"}, mayForward: true, fault: func(s *scene) time.Time {
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
	cases = append(cases, memoryCases()...)
	for i := range cases {
		cases[i].stage = quiet
	}
	return cases
}

// dialled is how long it may take a client to connect.
const dialled = 5 * time.Second

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
		conn, err := s.dial()
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
				for poll.Pause(ctx, 2*pollEvery) {
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

// dial connects to listproxy as a client with little room.
func (s *scene) dial() (net.Conn, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.viaConfig.CAData)
	conn, err := net.Dial("tcp", s.proxies.All()[0].Address())
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
