package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// The secret that must never be seen; it has the characters of a bearer token.
const secret = "s3cr3t-T0ken._~+/x=="

type credentials struct {
	Token string `json:"token"`
	Name  string `json:"name"`
}

type lazyToken struct{}

func (lazyToken) LogValue() slog.Value { return slog.StringValue("Bearer " + secret) }

func TestNoCredentialReachesTheLog(t *testing.T) {
	jwt := "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9." + "c2lnbmF0dXJl"
	tests := map[string]struct {
		log  func(*slog.Logger)
		hide []string // default: secret
		keep []string
	}{
		"message":    {log: func(l *slog.Logger) { l.Info("sent Bearer " + secret + " upstream") }, keep: []string{"sent Bearer MASKED upstream"}},
		"lower case": {log: func(l *slog.Logger) { l.Info("authorization: bearer " + secret) }},
		"error": {
			log: func(l *slog.Logger) {
				l.Info("failed", "err", fmt.Errorf("review: %w", errors.New("bad header \"Bearer "+secret+"\"")))
			},
			keep: []string{"review: bad header"},
		},
		"keys": {
			log: func(l *slog.Logger) {
				l.Info("m", "authorization", secret, "Proxy-Authorization", secret, "token", secret,
					"bearer_token", secret, "idToken", secret, "Cookie", secret, "set-cookie", secret,
					"PASSWORD", secret, "client-secret", secret, "Sec-WebSocket-Protocol", secret,
					"client-key-data", secret, "method", "GET")
			},
			keep: []string{"GET"},
		},
		"bytes under a key":                 {log: func(l *slog.Logger) { l.Info("m", "token", []byte(secret)) }},
		"group named so":                    {log: func(l *slog.Logger) { l.Info("m", slog.Group("credentials", "value", secret)) }},
		"logger's own group and attributes": {log: func(l *slog.Logger) { l.WithGroup("tokens").With("alice", secret).Info("m") }},
		"lazy value":                        {log: func(l *slog.Logger) { l.Info("m", "caller", lazyToken{}) }},
		"header": {
			log: func(l *slog.Logger) {
				l.Info("m", "header", http.Header{
					"Authorization": {"Custom " + secret}, "Cookie": {"a=b; sid=" + secret}, "Accept": {"application/json"},
				})
			},
			keep: []string{"application/json"},
		},
		"printed header": {
			log: func(l *slog.Logger) {
				l.Info(fmt.Sprint(http.Header{"Cookie": {"sid=" + secret}, "Authorization": {"Basic YTpi" + "c2VjcmV0"}}))
			},
			hide: []string{secret, "YTpi"},
		},
		"structure":              {log: func(l *slog.Logger) { l.Info("m", "who", map[string]any{"token": secret, "name": "alice"}) }, keep: []string{"alice"}},
		"pointer to a structure": {log: func(l *slog.Logger) { l.Info("m", "who", &credentials{Token: secret, Name: "alice"}) }, keep: []string{"alice"}},
		"JSON as text": {
			log: func(l *slog.Logger) {
				body, _ := json.Marshal(credentials{Token: secret, Name: "alice"})
				l.Info("m", "body", string(body))
			},
			keep: []string{"alice"},
		},
		"web token":                  {log: func(l *slog.Logger) { l.Info("got " + jwt) }, hide: []string{jwt, "c2lnbmF0dXJl"}},
		"websocket sub-protocol":     {log: func(l *slog.Logger) { l.Info("base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io") }, hide: []string{"c2VjcmV0"}, keep: []string{"v5.channel.k8s.io"}},
		"user and password in a URL": {log: func(l *slog.Logger) { l.Info("dial https://alice:hunter2@proxy:3128/x") }, hide: []string{"hunter2"}, keep: []string{"proxy:3128/x"}},
		"query parameter":            {log: func(l *slog.Logger) { l.Info("GET /x?access_token=hunter2&limit=5") }, hide: []string{"hunter2"}, keep: []string{"limit=5"}},
		"private key": {
			log: func(l *slog.Logger) {
				l.Info("-----BEGIN EC PRIVATE KEY-----\nhunter2\n-----END EC PRIVATE KEY-----\nafter")
			},
			hide: []string{"hunter2"},
			keep: []string{"after"},
		},
	}
	for name, test := range tests {
		for _, format := range []Format{FormatText, FormatJSON} {
			t.Run(name+"/"+string(format), func(t *testing.T) {
				var out bytes.Buffer
				test.log(NewLogger(&out, format, slog.LevelInfo))
				line := out.String()
				hide := test.hide
				if hide == nil {
					hide = []string{secret}
				}
				for _, text := range hide {
					if strings.Contains(line, text) {
						t.Errorf("%q is in the log: %s", text, line)
					}
				}
				if !strings.Contains(line, Masked) {
					t.Errorf("nothing was masked: %s", line)
				}
				for _, text := range test.keep {
					if !strings.Contains(line, text) {
						t.Errorf("%q is missing: %s", text, line)
					}
				}
				if strings.Count(line, "\n") != 1 {
					t.Errorf("not one line: %q", line)
				}
			})
		}
	}
}

func TestOrdinaryRecordsAreUntouched(t *testing.T) {
	var out bytes.Buffer
	logger := NewLogger(&out, FormatJSON, slog.LevelInfo)
	logger.Debug("not at this level")
	logger.Warn("list refused", "path", "/api/v1/namespaces/a/secrets", "limit", 5, "err", errors.New("no route to host"))

	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("the log is not one JSON object: %v: %s", err, out.String())
	}
	delete(got, "time")
	want := map[string]any{
		"level": "WARN", "msg": "list refused", "path": "/api/v1/namespaces/a/secrets",
		"limit": float64(5), "err": "no route to host",
	}
	expect.Same(t, want, got)
}

// TestAccessLevel: it has a name, its place between two others, and masks as they do.
func TestAccessLevel(t *testing.T) {
	for _, format := range []Format{FormatText, FormatJSON} {
		for name, want := range map[string]bool{"debug": true, "ACCESS": true, "info": false, "warn": false, "error": false} {
			level, err := ParseLevel(name)
			expect.NoError(t, err)
			var out bytes.Buffer
			NewLogger(&out, format, level).Log(t.Context(), LevelAccess, "request", "token", secret)
			if got := strings.Contains(out.String(), "ACCESS"); got != want || strings.Contains(out.String(), secret) {
				t.Errorf("%s, %s: %q", format, name, &out)
			}
		}
	}
	for _, name := range Levels() {
		if _, err := ParseLevel(name); err != nil {
			t.Error(err)
		}
	}
	if _, err := ParseLevel("loud"); err == nil || !strings.Contains(err.Error(), "choose debug, access, info, warn or error") {
		t.Errorf("got %v", err)
	}
}

type failingWriter struct{ n int }

func (f failingWriter) Write([]byte) (int, error) { return f.n, errors.New("disk full") }

func TestMaskingWriterCountsTheCallersBytes(t *testing.T) {
	line := []byte("Bearer a\n") // grows when masked
	if n, err := (&maskingWriter{w: &bytes.Buffer{}}).Write(line); n != len(line) || err != nil {
		t.Errorf("Write = %d, %v, want %d, nil", n, err, len(line))
	}
	if n, err := (&maskingWriter{w: failingWriter{n: 12}}).Write(line); n > len(line) || err == nil {
		t.Errorf("Write = %d, %v, want at most %d and an error", n, err, len(line))
	}
}
