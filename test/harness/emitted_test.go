package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
)

// launchStandIn runs this test's own program in listproxy's place.
func launchStandIn(t *testing.T, ownToken string) *Proxy {
	t.Helper()
	t.Setenv(standInEnv, "yes")
	program, err := os.Executable()
	expect.NoError(t, err)
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

func newKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	expect.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// TestEmittedSecretsAreFound: whatever way a process ends, what it has emitted is searched.
func TestEmittedSecretsAreFound(t *testing.T) {
	own, client, key := newToken(), newToken(), newKey(t)
	keyLine := strings.Split(key, "\n")[1]
	stopped := (*Proxy).Stop
	killed := func(p *Proxy) error { p.Kill(); return nil }
	for name, tt := range map[string]struct {
		prints, answers string
		public          bool // the key's file is readable for all
		end             func(*Proxy) error
		want            string // in the verdict
	}{
		"nothing":                               {prints: "msg=hello", answers: "ok", end: stopped},
		"its own token, in its log":             {prints: "token=" + own, end: stopped, want: "listproxy's own token was emitted in its output: token=[SECRET]"},
		"a client's token, in an answer":        {answers: client, end: stopped, want: "a client's token was emitted in the admin port's answer to /"},
		"its key":                               {prints: keyLine, end: stopped, want: "the key in tls.key was emitted in its output: [SECRET]"},
		"a key for all to read":                 {public: true, end: stopped, want: "tls.key holds a private key and has mode -rw-r--r--"},
		"before it was killed":                  {prints: "token=" + own, answers: client, end: killed, want: "a client's token was emitted"},
		"nothing, and it is left running":       {prints: "msg=hello", want: "was neither stopped nor killed"},
		"its own token, and it is left running": {prints: "token=" + own, want: "listproxy's own token was emitted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(printsEnv, tt.prints)
			t.Setenv(answersEnv, tt.answers)
			t.Setenv(keyEnv, key)
			if tt.public {
				t.Setenv(modeEnv, "yes")
			}
			p := launchStandIn(t, own)
			p.RESTConfig(&rest.Config{BearerToken: client})
			var err error
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
