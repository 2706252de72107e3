package forwarding

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"
)

// startKubelet starts what kube-apiserver needs of a kubelet: logs and exec, at the kubelet's paths and by the kubelet's
// code.
//
// It runs real commands, so it accepts only clients with the certificate of pair, which is kube-apiserver's.
func startKubelet(pair tls.Certificate) *httptest.Server {
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

// serveExec runs the command of the request as if in a container.
func serveExec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, executor{}, "", "", "", r.URL.Query()[corev1.ExecCommandParam], options,
		patience, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// executor runs commands on this machine.
type executor struct{}

// ExecInContainer implements [remotecommand.Executor].
func (executor) ExecInContainer(
	ctx context.Context, _, _, _ string, command []string, in io.Reader, out, errs io.WriteCloser,
	_ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	cmd := exec.New().CommandContext(ctx, command[0], command[1:]...)
	if in != nil {
		cmd.SetStdin(in)
	}
	cmd.SetStdout(out)
	cmd.SetStderr(errs)
	return cmd.Run()
}
