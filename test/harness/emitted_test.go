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

// launchStandIn runs a shell in listproxy's place, which says only where its admin port is.
func launchStandIn(t *testing.T, ownToken, admin string) *Proxy {
	t.Helper()
	program := filepath.Join(t.TempDir(), "stand-in")
	script := fmt.Sprintf("#!/bin/sh\necho msg=serving address=%s admin=%[1]s\nexec sleep 600\n", admin)
	expect.NoError(t, os.WriteFile(program, []byte(script), 0o700)) // #nosec G306 -- a program
	p, err := LaunchProxy(t.Context(), ProxyOptions{
		Binary: program, Upstream: &rest.Config{Host: "https://127.0.0.1:1", BearerToken: ownToken},
	})
	expect.NoError(t, err)
	return p
}

// forgive takes back what Verdict would tell.
func forgive() {
	processes.Lock()
	defer processes.Unlock()
	processes.found = nil
}

// TestEmittedSecretsAreFound: whatever way a process ends, what it has emitted is searched.
func TestEmittedSecretsAreFound(t *testing.T) {
	own, client := strings.ToLower(rand.Text()), strings.ToLower(rand.Text())
	stopped := (*Proxy).Stop
	killed := func(p *Proxy) error { p.Kill(); return nil }
	for name, tt := range map[string]struct {
		prints, answers string
		public          bool // the key's file is readable for all
		end             func(*Proxy) error
		want            string // in the verdict
	}{
		"nothing": {prints: "msg=hello", answers: "ok", end: stopped},
		"its own token, in its log": {
			prints: "token=" + own, end: stopped, want: "listproxy's own token was emitted in its output: token=[SECRET]",
		},
		"a client's token, in an answer":        {answers: client, end: stopped, want: "a client's token was emitted in the admin port's answer to /"},
		"its key":                               {prints: "KEY", end: stopped, want: "the key in tls.key was emitted in its output: [SECRET]"},
		"a key for all to read":                 {public: true, end: stopped, want: "tls.key holds a private key and has mode -rw-r--r--"},
		"before it was killed":                  {prints: "token=" + own, answers: client, end: killed, want: "a client's token was emitted"},
		"nothing, and it is left running":       {prints: "msg=hello", want: "was neither stopped nor killed"},
		"its own token, and it is left running": {prints: "token=" + own, want: "listproxy's own token was emitted"},
	} {
		t.Run(name, func(t *testing.T) {
			admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, tt.answers) }))
			defer admin.Close()
			p := launchStandIn(t, own, admin.Listener.Addr().String())
			file := filepath.Join(p.Dir(), "tls.key")
			key, err := os.ReadFile(file)
			expect.NoError(t, err)
			keyLine := strings.Split(string(key), "\n")[1]
			if tt.public {
				expect.NoError(t, os.Chmod(file, 0o644))
			}
			_, _ = fmt.Fprintln(p.log, strings.ReplaceAll(tt.prints, "KEY", keyLine))
			p.RESTConfig(&rest.Config{BearerToken: client})
			if tt.end != nil {
				err = tt.end(p)
			}
			var said strings.Builder
			code := verdict(0, &said)
			forgive()
			if failed := tt.want != ""; (code != 0) != failed || !strings.Contains(said.String(), tt.want) {
				t.Errorf("the verdict is %d: %s", code, &said)
			}
			for _, secret := range []string{own, client, keyLine} {
				if strings.Contains(said.String(), secret) || err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("what is said gives it away: %v, %s", err, &said)
				}
			}
		})
	}
	if got := Verdict(2); got != 2 {
		t.Errorf("2 became %d", got)
	}
}
