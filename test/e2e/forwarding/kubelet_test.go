package forwarding

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// startStandIn starts what the API server needs of a kubelet: logs, and exec over SPDY, which is what the API
// server speaks to kubelets, whatever the client speaks to it. The paths and the protocols are the
// kubelet's.
//
// It runs real commands, so it lets in the API server only, by its client certificate.
func startStandIn(pair tls.Certificate) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "first line\nsecond line\n")
	})
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", serveExec)
	kubelet := httptest.NewUnstartedServer(mux)
	kubelet.TLS = &tls.Config{
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
	kubelet.StartTLS()
	return kubelet
}

// serveExec runs the command here.
func serveExec(w http.ResponseWriter, r *http.Request) {
	conn, streams := openStreams(w, r)
	if streams == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-conn.CloseChan()
		cancel()
	}()
	command := r.URL.Query()[corev1.ExecCommandParam]
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) // #nosec G204 -- from the tests, by way of the API server
	cmd.Stdout, cmd.Stderr = streams[corev1.StreamTypeStdout], streams[corev1.StreamTypeStderr]
	in, err := cmd.StdinPipe()
	if err == nil {
		// Not cmd.Stdin, for whose end Wait would wait.
		go func() {
			if from := streams[corev1.StreamTypeStdin]; from != nil {
				_, _ = io.Copy(in, from)
			}
			_ = in.Close()
		}()
		err = cmd.Run()
	}
	_ = json.NewEncoder(streams[corev1.StreamTypeError]).Encode(statusOf(err))
	_ = conn.Close()
}

// openStreams turns a request into a connection, with the streams that the query says will come, by
// their types.
func openStreams(w http.ResponseWriter, r *http.Request) (httpstream.Connection, map[string]httpstream.Stream) {
	wanted := 1 // for how it ends
	for _, parameter := range []string{corev1.ExecStdinParam, corev1.ExecStdoutParam, corev1.ExecStderrParam} {
		if r.URL.Query().Get(parameter) == "1" {
			wanted++
		}
	}
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV4Name}); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return nil, nil
	}
	come := make(chan httpstream.Stream, wanted)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			come <- s
		}()
		return nil
	})
	if conn == nil {
		return nil, nil
	}
	streams := map[string]httpstream.Stream{}
	for len(streams) < wanted {
		select {
		case s := <-come:
			streams[s.Headers().Get(corev1.StreamType)] = s
		case <-conn.CloseChan():
			return nil, nil
		}
	}
	return conn, streams
}

// statusOf says how a process ended.
func statusOf(err error) metav1.Status {
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
			Message: fmt.Sprintf("command terminated with non-zero exit code: %v", err),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
				Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(exit.ExitCode()),
			}}},
		}
	case err != nil:
		return metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: err.Error()}
	}
	return metav1.Status{Status: metav1.StatusSuccess}
}
