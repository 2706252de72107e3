package harness

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
)

// launchStandIn runs a shell script in listproxy's place. The script logs the line in which listproxy says where it listens,
// with the address admin for both ports, and then sleeps.
func launchStandIn(t *testing.T, ownToken, admin string) *Proxy {
	t.Helper()
	program := filepath.Join(t.TempDir(), "stand-in")
	script := fmt.Sprintf("#!/bin/sh\necho msg=serving address=%s admin=%s\nexec sleep 600\n", admin, admin)
	expect.NoError(t, os.WriteFile(program, []byte(script), 0o700)) // #nosec G306 -- a program
	p, err := LaunchProxy(t.Context(), ProxyOptions{
		Binary: program, Upstream: &rest.Config{Host: "https://127.0.0.1:1", BearerToken: ownToken},
	})
	expect.NoError(t, err)
	return p
}

// forgetLeaks makes KillRunning forget the emitted secrets.
func forgetLeaks() {
	processes.Lock()
	defer processes.Unlock()
	processes.leaks = nil
}

// TestEmittedSecretsAreFound: the exit code of the tests is not 0 if a listproxy has emitted a secret, however it ended, or if
// it was left running. The output says which secret was emitted where, without the secret.
func TestEmittedSecretsAreFound(t *testing.T) {
	own, client := strings.ToLower(rand.Text()), strings.ToLower(rand.Text())
	stop := (*Proxy).Stop
	kill := func(p *Proxy) error { p.Kill(); return nil } // Kill returns no error
	for name, tt := range map[string]struct {
		logLine, adminAnswer string
		keyIsPublic          bool               // the file of the key is readable for all
		end                  func(*Proxy) error // nil: the process is left running
		wantFailure          string             // in the output of killRunning; "": none
	}{
		"no secret": {logLine: "msg=hello", adminAnswer: "ok", end: stop},
		"own token in the log": {
			logLine: "token=" + own, end: stop,
			wantFailure: "listproxy's own token was emitted in its output: token=[SECRET]",
		},
		"a client's token in an answer": {
			adminAnswer: client, end: stop, wantFailure: "a client's token was emitted in the admin port's answer to /",
		},
		"the serving key in the log":         {logLine: "KEY", end: stop, wantFailure: "the key in tls.key was emitted in its output: [SECRET]"},
		"a key that all may read":            {keyIsPublic: true, end: stop, wantFailure: "tls.key holds a private key and has mode -rw-r--r--"},
		"tokens, then killed":                {logLine: "token=" + own, adminAnswer: client, end: kill, wantFailure: "a client's token was emitted"},
		"no secret, left running":            {logLine: "msg=hello", wantFailure: "was neither stopped nor killed"},
		"own token in the log, left running": {logLine: "token=" + own, wantFailure: "listproxy's own token was emitted"},
	} {
		t.Run(name, func(t *testing.T) {
			admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, tt.adminAnswer) }))
			defer admin.Close()
			p := launchStandIn(t, own, admin.Listener.Addr().String())
			file := filepath.Join(p.Dir(), "tls.key")
			key, err := os.ReadFile(file)
			expect.NoError(t, err)
			keyLine := strings.Split(string(key), "\n")[1]
			if tt.keyIsPublic {
				expect.NoError(t, os.Chmod(file, 0o644))
			}
			_, _ = fmt.Fprintln(p.log, strings.ReplaceAll(tt.logLine, "KEY", keyLine))
			p.RESTConfig(&rest.Config{BearerToken: client}) // makes the client's token a secret
			if tt.end != nil {
				err = tt.end(p)
			}
			var output strings.Builder
			code := killRunning(0, &output)
			forgetLeaks()
			hasFailed, wantsFailure := code != 0, tt.wantFailure != ""
			if hasFailed != wantsFailure {
				t.Errorf("the exit code is %d with %q, want the failure %q", code, &output, tt.wantFailure)
			}
			expect.Says(t, output.String(), tt.wantFailure)
			complaints := fmt.Sprint(output.String(), err)
			for _, secret := range []string{own, client, keyLine} {
				if strings.Contains(complaints, secret) {
					t.Errorf("the output or the error has a secret: %s", complaints)
				}
			}
		})
	}
}
