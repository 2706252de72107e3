package harness

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The environment of a process that stands in for listproxy, and emits what it finds there.
const (
	standInEnv = "PROXYRUN_STAND_IN"
	printsEnv  = "PROXYRUN_PRINTS"
	answersEnv = "PROXYRUN_ANSWERS"
	keyEnv     = "PROXYRUN_KEY"
	modeEnv    = "PROXYRUN_KEY_MODE"
)

func TestMain(m *testing.M) {
	if os.Getenv(standInEnv) != "" {
		if err := standIn(); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	Main(m, Options{SetUp: func(s *Suite) error {
		dir, err := s.Dir() // for logs of stand-ins that fail, which they are meant to
		if err != nil {
			return err
		}
		return os.Setenv("TMPDIR", dir)
	}})
}

// standIn runs until SIGTERM, as listproxy does.
func standIn() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	dir := flags.String("cert-dir", "", "")
	for _, name := range []string{
		"kubeconfig", "bind-address", "secure-port", "admin-bind-address", "log-level",
		"shutdown-timeout",
	} {
		flags.String(name, "", "")
	}
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	if key := os.Getenv(keyEnv); key != "" {
		mode := os.FileMode(0o600)
		if os.Getenv(modeEnv) != "" {
			mode = 0o644
		}
		file := filepath.Join(*dir, "tls.key") // where there is one already
		if err := errors.Join(os.WriteFile(file, []byte(key), mode), os.Chmod(file, mode)); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, os.Getenv(answersEnv)) })
	server := &http.Server{Handler: answer, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	// First, since whoever reads the second line may end the process at once.
	_, _ = fmt.Fprintln(os.Stderr, os.Getenv(printsEnv))
	_, _ = fmt.Fprintf(os.Stderr, "msg=serving address=%s admin=%s\n", listener.Addr(), listener.Addr())
	select {
	case <-ctx.Done():
		return server.Close()
	case err := <-served:
		return err
	}
}

// newToken is a secret like those of test/controlplane.
func newToken() string { return strings.ToLower(rand.Text()) }
