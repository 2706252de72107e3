package forwarding

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
)

// standIn is what the API server needs of a kubelet: logs, exec, attach and port-forward, the
// latter three over SPDY, which is what the API server speaks to kubelets, whatever the client
// speaks to it. The paths and the protocols are the kubelet's.
//
// It runs real commands, so it lets in the API server only, by its client certificate.
type standIn struct {
	server *httptest.Server

	mu      sync.Mutex
	follows map[string]*follow // by pod
}

// follow is one pod's log, as it grows.
type follow struct {
	lines chan string   // to be sent, each once the one before is on its way
	ended chan struct{} // receives when the API server's request has ended
}

func startStandIn(pair tls.Certificate) *standIn {
	k := &standIn{follows: map[string]*follow{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLogs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.serveExec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", k.serveAttach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.servePortForward)
	k.server = httptest.NewUnstartedServer(mux)
	k.server.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS12,
		ClientAuth:   tls.RequireAnyClientCert,
		VerifyConnection: func(s tls.ConnectionState) error {
			if !bytes.Equal(s.PeerCertificates[0].Raw, pair.Certificate[0]) {
				return errors.New("not the API server")
			}
			return nil
		},
	}
	k.server.StartTLS()
	return k
}

func (k *standIn) close() {
	k.server.CloseClientConnections()
	k.server.Close()
}

func (k *standIn) port() int32 {
	return int32(k.server.Listener.Addr().(*net.TCPAddr).Port) // #nosec G115 -- a port
}

// grow makes the log of a pod grow by what is sent on the returned lines.
func (k *standIn) grow(pod string) *follow {
	f := &follow{lines: make(chan string), ended: make(chan struct{}, 1)}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.follows[pod] = f
	return f
}

// oldLog is what every container has logged so far.
const oldLog = "first line\nsecond line\n"

func (k *standIn) serveLogs(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = fmt.Fprint(w, oldLog)
	if r.URL.Query().Get("follow") != "true" {
		return
	}
	flusher := http.NewResponseController(w)
	_ = flusher.Flush()
	k.mu.Lock()
	f := k.follows[r.PathValue("pod")]
	k.mu.Unlock()
	if f == nil {
		return
	}
	defer func() { f.ended <- struct{}{} }()
	for {
		select {
		case line, ok := <-f.lines:
			if !ok {
				return
			}
			_, _ = fmt.Fprintln(w, line)
			_ = flusher.Flush()
		case <-r.Context().Done():
			return
		}
	}
}
