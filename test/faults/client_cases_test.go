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
		{name: "clients_slow_and_stuck", inSoak: true, fault: (*scene).runSlowClients},
		{name: "listproxy_killed", suite: makeTestAll, noHitsBecause: "no listproxy runs", fault: (*scene).killListproxy},
		{
			name: "listproxy_told_twice_to_end", suite: makeTestAll, args: []string{"--shutdown-timeout", "10m"},
			noHitsBecause: "no listproxy runs", fault: (*scene).signalTwice,
		},
		{
			name: "listproxies_rolled", suite: makeTestAll, replicas: 2, wantAllAnswered: true, wantNobodyRejected: true,
			args: []string{"--shutdown-delay-duration", shutdownDelay.String(), "--shutdown-timeout", "1m"}, fault: (*scene).replaceReplicas,
		},
		{
			name: "memory_tight", suite: makeTestAll, shell: "export GOMEMLIMIT=24MiB", args: []string{"--cache-bytes", "256Ki"},
			mayForward: true, fault: func(s *scene) time.Time { s.waitDuringFault(); return time.Now() },
		},
		// With this limit not one byte can be written to any file: the kernel ends a process that tries (SIGXFSZ).
		{name: "no_disk", shell: "ulimit -f 0", fault: func(s *scene) time.Time {
			s.hop.CutAll() // listproxy has to connect and load again
			begun := time.Now()
			s.waitDuringFault()
			return begun
		}},
	}
	return append(cases, memoryCases()...)
}

// killListproxy kills listproxy, and starts another one.
func (s *scene) killListproxy() time.Time {
	old := s.firstProxy()
	old.Kill()
	s.removeProxy(old)
	s.faultBegins() // the last hits are before this
	killed := time.Now()
	s.startListproxy()
	return killed
}

// signalTwice sends SIGTERM twice. After the first signal listproxy waits until its requests have ended. One of them never
// ends, a write whose body does not come. The second signal must end listproxy at once.
func (s *scene) signalTwice() time.Time {
	old := s.firstProxy()
	s.sendHalfWrite()
	s.must(old.Signal(syscall.SIGTERM))
	s.must(poll.Retry(s.Context(), "the shutdown to begin", func() error {
		if !strings.Contains(old.Log(), "msg=stopping") {
			return errors.New("not in the log")
		}
		return nil
	}))
	s.removeProxy(old)
	err := old.Stop() // sends the second SIGTERM
	if err == nil || !strings.Contains(err.Error(), "signal: terminated") {
		s.Errorf("it ended with %v, want signal: terminated", err)
	}
	ended := time.Now()
	s.startListproxy()
	return ended
}

const (
	// readinessLag is the time after which the balancer learns that a replica is no longer ready.
	readinessLag = 1500 * time.Millisecond
	// shutdownDelay is the time for which a replica goes on serving after SIGTERM. It is longer than readinessLag.
	shutdownDelay = 15 * time.Second
)

// replaceReplicas replaces all replicas, one by one. Each gets SIGTERM, and the balancer goes on sending clients there until it
// learns that the replica is no longer ready. Meanwhile more clients read and write: some over one connection of HTTP/1.1,
// others over a new connection for each request.
func (s *scene) replaceReplicas() time.Time {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	var clients sync.WaitGroup
	readAndWrite := func(c *ask.Client) {
		for clock.Sleep(ctx, 2*askEvery) {
			_, _, _ = s.Ask(ctx, c, question{Collection: collections()[0], Query: ask.AnyVersion}, noMinRevision)
			asked := time.Now()
			a, err := s.Touch(ctx, c, pods, s.namespaces[0], marker)
			if ctx.Err() == nil {
				const isCacheable = false // a write
				s.Tally.AddAnswer(asked, a, err, isCacheable)
			}
		}
	}
	for _, connectAlways := range []bool{false, true} {
		c, leave, err := s.newClient(s.proxiedConfig.BearerToken, &http.Transport{DisableKeepAlives: connectAlways})
		s.must(err)
		s.Cleanup(leave)
		clients.Go(func() { readAndWrite(c) })
		clients.Go(func() { readAndWrite(s.proxied) })
	}
	for _, old := range s.proxies.All() {
		s.startListproxy()
		s.proxies.Remove(old)
		ended := make(chan error, 1)
		go func() { ended <- old.Stop() }()
		s.must(poll.Retry(ctx, "the replica not to be ready", func() error {
			if ready, body := old.Ready(ctx); ready {
				return errors.New(body)
			}
			return nil
		}))
		clock.Sleep(ctx, readinessLag)
		s.proxies.Balancer.Remove(old.Address())
		s.must(<-ended)
	}
	cancel()
	clients.Wait()
	return time.Now()
}

// sendHalfWrite sends the header and one byte of a write. listproxy has begun to read the body when it returns.
func (s *scene) sendHalfWrite() {
	s.Helper()
	conn, err := dial(s.firstProxy().Address(), s.proxiedConfig.CAData, 0)
	s.must(err)
	s.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n", configMaps.Path(s.namespaces[0]), s.proxiedConfig.BearerToken)
	s.must(err)
	if status, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(status, "HTTP/1.1 100 ") {
		s.Fatalf("got %q, %v, want 100 Continue", status, err)
	}
	_, err = fmt.Fprint(conn, "{")
	s.must(err)
}

const (
	slowClients  = 10
	stuckClients = 20
	// pipelined is the number of lists that each of these clients asks for without reading an answer. The buffers on the way
	// hold fewer.
	pipelined = 200
)

// runSlowClients runs clients that ask for many lists and read little or nothing of the answers.
func (s *scene) runSlowClients() time.Time {
	s.whileSlowClientsRead(pods.Path(""), s.proxiedConfig.BearerToken, func() {
		s.waitDuringFault()
		s.awaitCompared("beside slow and stuck clients")
	})
	return time.Now()
}

// whileSlowClientsRead calls do while slowClients and stuckClients ask for the lists at path. The slow ones read a few bytes
// now and then, and the stuck ones nothing. All send the same token.
func (s *scene) whileSlowClientsRead(path, token string, do func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	var clients sync.WaitGroup
	for i := range slowClients + stuckClients {
		conn, err := dial(s.firstProxy().Address(), s.proxiedConfig.CAData, i)
		s.must(err)
		clients.Go(func() {
			defer func() { _ = conn.Close() }()
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends a blocked read or write
			defer stop()
			clients.Go(func() { pipelineLists(conn, path, token) })
			if isSlow := i < slowClients; isSlow {
				readSlowly(ctx, conn)
			}
			<-ctx.Done()
		})
	}
	do()
	cancel()
	clients.Wait()
}

// pipelineLists asks for many lists of any version, one behind the other, until a write fails.
func pipelineLists(conn net.Conn, path, token string) {
	request := fmt.Sprintf("GET %s?%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", path, ask.AnyVersion, token)
	for range pipelined {
		if _, err := io.WriteString(conn, request); err != nil {
			return
		}
	}
}

// readSlowly reads a few bytes now and then, until ctx ends or the connection does.
func readSlowly(ctx context.Context, conn net.Conn) {
	const bytesAtOnce = 512
	for clock.Sleep(ctx, 2*pollEvery) {
		if _, err := io.CopyN(io.Discard, conn, bytesAtOnce); err != nil {
			return
		}
	}
}

// dial connects to listproxy with a small read buffer. The client's number chooses one of eight addresses from which it
// connects.
func dial(address string, ca []byte, client int) (net.Conn, error) {
	const addresses = 8
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+client%addresses))}}
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
