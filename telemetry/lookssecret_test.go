package telemetry

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestLooksSecret(t *testing.T) {
	for want, words := range map[bool][]string{
		false: {
			"", "pods", "horizontalpodautoscalers", "k8spspallowprivilegeescalationcontainer", // of Gatekeeper
			"storage.internal.apiserver.k8s.io", "v1beta3", "kubectl/v1.36.3", "tool/v0.0.0-20260501123456-abcdef123456", // a version of Go's
			"web-7d4b9c6f5-x2x8q", // a pod of a Deployment
			"team-a-2026", "kube-system", "foobar.internalservices", "123456.1234567890123456", "deadbeefdeadbeef",
		},
		true: {
			"abcdef.0123456789abcdef", "x/abcdef.0123456789abcdef", // a bootstrap token
			"6ba7b810-9dad-11d1-80b4-00c04fd430c8", "pvc-6ba7b810-9dad-11d1-80b4-00c04fd430c8", "eyJhbGciOi", "0123456789abcdef",
			"vlx3q7h2m5k8n4", "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
		},
	} {
		for _, word := range words {
			if got := LooksSecret(word); got != want {
				t.Errorf("%q: %v, want %v", word, got, want)
			}
		}
	}
}

// A bootstrap token that came into a line by an error's text is masked there, and what only looks a
// little like one is not.
func TestLogMasksBootstrapTokens(t *testing.T) {
	for text, want := range map[string]string{
		"abcdef.0123456789abcdef":                          Masked,
		"join abcdef.0123456789abcdef, please":             "join " + Masked + ", please",
		"a=abcdef.0123456789abcdef b=x":                    "a=" + Masked + " b=x",
		"abcdef.0123456789abcdef abcdef.0123456789abcdef.": Masked + " " + Masked + ".",
		"foobar.internalservices":                          "foobar.internalservices",
		"x-abcdef.0123456789abcdef":                        "x-abcdef.0123456789abcdef", // an Event's name
		"a.abcdef.0123456789abcdef":                        "a.abcdef.0123456789abcdef",
	} {
		var out bytes.Buffer
		NewLogger(&out, FormatJSON, slog.LevelInfo).Info("test", "error", text)
		if !strings.Contains(out.String(), `"error":"`+want+`"`) {
			t.Errorf("%q: %s", text, &out)
		}
	}
}
