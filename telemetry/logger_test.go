package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// secret is a bearer token that must never be logged. It has all kinds of characters that a bearer token can have.
const secret = "s3cr3t-T0ken._~+/x=="

type credentials struct {
	Token string `json:"token"`
	Name  string `json:"name"`
}

type lazyToken struct{}

func (lazyToken) LogValue() slog.Value { return slog.StringValue("Bearer " + secret) }

// TestNoCredentialReachesTheLog: a logger of NewLogger masks credentials in every part of a record, and keeps the rest. No line
// has the constant secret or the text wantGone.
func TestNoCredentialReachesTheLog(t *testing.T) {
	const (
		// In two parts, for scanners of secrets.
		jwt        = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9." + "c2lnbmF0dXJl"
		basic      = "Basic YTpi" + "c2VjcmV0"
		privateKey = "-----BEGIN EC PRIVATE KEY-----\nhunter2\n-----END EC PRIVATE KEY-----\nafter"
	)
	header := http.Header{"Authorization": {"Custom " + secret}, "Cookie": {"a=b; sid=" + secret}, "Accept": {"application/json"}}
	body, err := json.Marshal(credentials{Token: secret, Name: "alice"})
	expect.NoError(t, err)
	attrs := func(args ...any) []any { return args }
	for name, tt := range map[string]struct {
		message  string
		attrs    []any
		wantGone string // empty: only the secret must be gone
		wantKept string // must be in the line
	}{
		"in the message":   {message: "sent Bearer " + secret + " upstream", wantKept: "sent Bearer MASKED upstream"},
		"in a header line": {message: "authorization: bearer " + secret},
		"in an error": {
			attrs:    attrs("err", fmt.Errorf("review: %w", errors.New("bad header \"Bearer "+secret+"\""))),
			wantKept: "review: bad header",
		},
		"under keys that name it": {
			attrs: attrs("authorization", secret, "Proxy-Authorization", secret, "token", secret, "bearer_token", secret,
				"idToken", secret, "Cookie", secret, "set-cookie", secret, "PASSWORD", secret, "client-secret", secret,
				"Sec-WebSocket-Protocol", secret, "client-key-data", secret, "method", "GET"),
			wantKept: "GET",
		},
		"as bytes under a key":          {attrs: attrs("token", []byte(secret))},
		"in a group whose key names it": {attrs: attrs(slog.Group("credentials", "value", secret))},
		"in a LogValuer":                {attrs: attrs("caller", lazyToken{})},
		"in an http.Header":             {attrs: attrs("header", header), wantKept: "application/json"},
		"in an http.Header, printed": {
			message:  fmt.Sprint(http.Header{"Cookie": {"sid=" + secret}, "Authorization": {basic}}),
			wantGone: "YTpi",
		},
		"in a map": {attrs: attrs("who", map[string]any{"token": secret, "name": "alice"}), wantKept: "alice"},
		"in a structure behind a pointer": {
			attrs:    attrs("who", &credentials{Token: secret, Name: "alice"}),
			wantKept: "alice",
		},
		"in a JSON document": {attrs: attrs("body", string(body)), wantKept: "alice"},
		"a JSON web token":   {message: "got " + jwt, wantGone: "c2lnbmF0dXJl"},
		"a websocket sub-protocol": {
			message:  "base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io",
			wantGone: "c2VjcmV0", wantKept: "v5.channel.k8s.io",
		},
		"user and password in a URL": {
			message:  "dial https://alice:hunter2@proxy:3128/x",
			wantGone: "hunter2", wantKept: "proxy:3128/x",
		},
		"a query parameter": {
			message:  "GET /x?access_token=hunter2&limit=5",
			wantGone: "hunter2", wantKept: "limit=5",
		},
		"a private key": {message: privateKey, wantGone: "hunter2", wantKept: "after"},
	} {
		for _, format := range []Format{FormatText, FormatJSON} {
			t.Run(name+"/"+string(format), func(t *testing.T) {
				var out bytes.Buffer
				NewLogger(&out, format, slog.LevelInfo).Info(tt.message, tt.attrs...)
				line := out.String()
				for _, gone := range []string{secret, tt.wantGone} {
					if gone != "" && strings.Contains(line, gone) {
						t.Errorf("the credential %q is in the log: %s", gone, line)
					}
				}
				expect.Says(t, line, Masked, tt.wantKept)
				expect.Same(t, 1, strings.Count(line, "\n"))
			})
		}
	}
}

// TestGroupsOfTheLogger: a logger masks the attributes in a group (WithGroup) whose name says that they are credentials.
func TestGroupsOfTheLogger(t *testing.T) {
	var out bytes.Buffer
	NewLogger(&out, FormatText, slog.LevelInfo).WithGroup("tokens").With("alice", secret).Info("m")
	expect.Says(t, out.String(), Masked)
	if strings.Contains(out.String(), secret) {
		t.Errorf("the credential is in the log: %s", &out)
	}
}

// TestOrdinaryRecordsAreUntouched: a record without credentials is written unchanged, if its level is high enough.
func TestOrdinaryRecordsAreUntouched(t *testing.T) {
	var out bytes.Buffer
	logger := NewLogger(&out, FormatJSON, slog.LevelInfo)
	logger.Debug("not at this level")
	logger.Warn("list refused", "path", "/api/v1/namespaces/a/secrets", "limit", 5, "err", errors.New("no route to host"))

	_, got, _ := strings.Cut(out.String(), ",") // after the time
	expect.Same(t, `"level":"WARN","msg":"list refused","path":"/api/v1/namespaces/a/secrets","limit":5,"err":"no route to host"}`+"\n", got)
}

// TestAccessLevel: a logger of the level debug or access writes records of LevelAccess, with the name ACCESS and masked.
func TestAccessLevel(t *testing.T) {
	for _, format := range []Format{FormatText, FormatJSON} {
		for name, want := range map[string]bool{"debug": true, "ACCESS": true, "info": false, "warn": false, "error": false} {
			level, err := ParseLevel(name)
			expect.NoError(t, err)
			var out bytes.Buffer
			NewLogger(&out, format, level).Log(t.Context(), LevelAccess, "request", "token", secret)
			if got := strings.Contains(out.String(), "ACCESS"); got != want || strings.Contains(out.String(), secret) {
				t.Errorf("a logger of format %s and level %s writes %q, want a masked line: %t", format, name, &out, want)
			}
		}
	}
}

// TestParseLevelRefusesUnknownNames: ParseLevel refuses an unknown name with an error that lists all levels.
func TestParseLevelRefusesUnknownNames(t *testing.T) {
	const want = "choose debug, access, info, warn or error"
	if _, err := ParseLevel("loud"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want one with %q", err, want)
	}
}

// TestForLibraries: messages of libraries are logged only at level debug, and their details (bodies of requests) never.
func TestForLibraries(t *testing.T) {
	for level, want := range map[slog.Level]string{
		slog.LevelInfo:  "",
		slog.LevelDebug: "level=ERROR msg=failure a=1\nlevel=INFO msg=start a=1\n",
	} {
		var out bytes.Buffer
		library := ForLibraries(NewLogger(&out, FormatText, level)).With("a", 1)
		library.Error("failure")
		library.Info("start")
		library.Log(t.Context(), slog.LevelDebug-4, "body of a request")
		expect.Same(t, want, regexp.MustCompile(`(?m)^time=\S+ `).ReplaceAllString(out.String(), ""))
	}
}

// TestMaskBootstrapTokens: a bootstrap token in an error's text is masked. A name that only looks similar is not.
func TestMaskBootstrapTokens(t *testing.T) {
	for text, want := range map[string]string{
		"abcdef.0123456789abcdef":                          Masked,
		"join abcdef.0123456789abcdef, please":             "join " + Masked + ", please",
		"a=abcdef.0123456789abcdef b=x":                    "a=" + Masked + " b=x",
		"abcdef.0123456789abcdef abcdef.0123456789abcdef.": Masked + " " + Masked + ".",
		"foobar.services":                                  "foobar.services",
		"x-abcdef.0123456789abcdef":                        "x-abcdef.0123456789abcdef", // an Event's name
		"a.abcdef.0123456789abcdef":                        "a.abcdef.0123456789abcdef",
	} {
		var out bytes.Buffer
		NewLogger(&out, FormatJSON, slog.LevelInfo).Info("test", "error", text)
		if !strings.Contains(out.String(), `"error":"`+want+`"`) {
			t.Errorf("the error %q is logged as %s, want %q", text, &out, want)
		}
	}
}

// TestUserAgent: UserAgent returns the first word of a header, such as kubectl/v1.36.3. It returns MASKED in place of a word
// that may be a credential, is longer than 64 characters, or has characters that a program's name does not have.
func TestUserAgent(t *testing.T) {
	jwt := "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9." + "c2lnbmF0dXJl"
	for header, want := range map[string]string{
		"": "(none)", "   ": "(none)",
		// Products and names, of which only the first word is kept.
		"kubectl/v1.36.3 (linux/amd64) kubernetes/0123456789abcdef0123456789abcdef01234567":  "kubectl/v1.36.3",
		"kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/1234567/tokens-controller": "kube-controller-manager/v1.36.3",
		"Mozilla/5.0 (X11; Linux x86_64)": "Mozilla/5.0",
		"Bearer " + secret:                "Bearer",
		"tool abcdef.0123456789abcdef":    "tool",
	} {
		checkUserAgent(t, header, want)
	}
	for _, product := range []string{
		"my_own.tool~1", "Go-http-client/2.0", "team-a-2026", "deadbeefdeadbeef", strings.Repeat("a-", 32),
		"job-6ba7b810-9dad-11d1-80b4-00c04fd430c8/1", // with a UID
		"tool/v0.0.0-20260501123456-abcdef123456",    // a version of Go's
		"web-7d4b9c6f5-x2x8q",                        // a pod of a Deployment
	} {
		checkUserAgent(t, product, product)
	}
	for _, masked := range []string{
		// Web tokens, bootstrap tokens, long words of letters and digits, and URLs with credentials.
		jwt, jwt[:30], "tool/" + jwt, "abcdef.0123456789abcdef", "kubeadm/abcdef.0123456789abcdef",
		"tool/0123456789abcdef0123456789abcdef01234567", "vlx3q7h2m5k8n4p6r9t1w0yzab", "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
		"https://alice:" + secret + "@example.com/", "?token=" + secret,
		// Not a product token.
		"<script>alert(1)</script>", "a\x1b[2J", "café/1", strings.Repeat("a", 65), strings.Repeat("é", 5000),
	} {
		checkUserAgent(t, masked, Masked)
	}
}

func checkUserAgent(t *testing.T, header, want string) {
	t.Helper()
	if got := UserAgent(header); got != want {
		t.Errorf("UserAgent(%q) is %q, want %q", header, got, want)
	}
}
