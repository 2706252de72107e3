package forwarding

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
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

// upgrade turns a request into a connection of streams. Each stream comes with its headers.
func upgrade(w http.ResponseWriter, r *http.Request, protocol string) (httpstream.Connection, <-chan httpstream.Stream) {
	if _, err := httpstream.Handshake(r, w, []string{protocol}); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return nil, nil
	}
	streams := make(chan httpstream.Stream, 16)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			streams <- s
		}()
		return nil
	})
	return conn, streams
}

// process is the far end of exec and attach: the streams of a container's process.
type process struct {
	conn   httpstream.Connection
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	status io.Writer
}

// openProcess collects the streams that the query says will come.
func openProcess(w http.ResponseWriter, r *http.Request) *process {
	query := r.URL.Query()
	missing := map[string]bool{corev1.StreamTypeError: true}
	for parameter, stream := range map[string]string{
		corev1.ExecStdinParam:  corev1.StreamTypeStdin,
		corev1.ExecStdoutParam: corev1.StreamTypeStdout,
		corev1.ExecStderrParam: corev1.StreamTypeStderr,
	} {
		if query.Get(parameter) == "1" {
			missing[stream] = true
		}
	}
	conn, streams := upgrade(w, r, remotecommand.StreamProtocolV4Name)
	if conn == nil {
		return nil
	}
	p := &process{conn: conn, stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	for len(missing) > 0 {
		select {
		case s := <-streams:
			kind := s.Headers().Get(corev1.StreamType)
			delete(missing, kind)
			switch kind {
			case corev1.StreamTypeError:
				p.status = s
			case corev1.StreamTypeStdin:
				p.stdin = s
			case corev1.StreamTypeStdout:
				p.stdout = s
			case corev1.StreamTypeStderr:
				p.stderr = s
			}
		case <-conn.CloseChan():
			return nil
		}
	}
	return p
}

// end reports how the process ended.
func (p *process) end(err error) {
	status := metav1.Status{Status: metav1.StatusSuccess}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		status = metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
			Message: fmt.Sprintf("command terminated with non-zero exit code: %v", err),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
				Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(exit.ExitCode()),
			}}},
		}
	case err != nil:
		status = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: err.Error()}
	}
	_ = json.NewEncoder(p.status).Encode(status)
	_ = p.conn.Close()
}

// serveExec runs the command here.
func (k *standIn) serveExec(w http.ResponseWriter, r *http.Request) {
	command := r.URL.Query()[corev1.ExecCommandParam]
	p := openProcess(w, r)
	if p == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-p.conn.CloseChan()
		cancel()
	}()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) // #nosec G204 -- from the tests, by way of the API server
	cmd.Stdout, cmd.Stderr = p.stdout, p.stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		// Not cmd.Stdin, for whose end Wait would wait.
		go func() {
			_, _ = io.Copy(in, p.stdin)
			_ = in.Close()
		}()
		err = cmd.Run()
	}
	p.end(err)
}

// portForwardProtocol is the kubelet's.
const portForwardProtocol = "portforward.k8s.io"

// servePortForward connects to ports of this machine: the pod's network is the host's.
func (k *standIn) servePortForward(w http.ResponseWriter, r *http.Request) {
	conn, streams := upgrade(w, r, portForwardProtocol)
	if conn == nil {
		return
	}
	defer func() { _ = conn.Close() }()
	pairs := map[string]map[string]httpstream.Stream{} // by request and type
	var forwards sync.WaitGroup
	defer forwards.Wait()
	for {
		select {
		case s := <-streams:
			request := s.Headers().Get(corev1.PortForwardRequestIDHeader)
			if pairs[request] == nil {
				pairs[request] = map[string]httpstream.Stream{}
			}
			pairs[request][s.Headers().Get(corev1.StreamType)] = s
			if pair := pairs[request]; len(pair) == 2 {
				delete(pairs, request)
				forwards.Go(func() { forwardPort(pair[corev1.StreamTypeData], pair[corev1.StreamTypeError]) })
			}
		case <-conn.CloseChan():
			return
		}
	}
}

// forwardPort is one connection to a port.
func forwardPort(data, failure httpstream.Stream) {
	defer func() {
		_ = data.Close()
		_ = failure.Close()
	}()
	to, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", data.Headers().Get(corev1.PortHeader)))
	if err != nil {
		_, _ = fmt.Fprint(failure, err)
		return
	}
	defer func() { _ = to.Close() }()
	sent := make(chan struct{})
	go func() {
		_, _ = io.Copy(to, data)
		_ = to.(*net.TCPConn).CloseWrite()
		close(sent)
	}()
	_, _ = io.Copy(data, to)
	_ = data.Close()
	<-sent
}
