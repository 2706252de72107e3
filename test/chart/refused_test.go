package chart

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/listproxy/listproxy/test/expect"
)

// TestRefused: Helm refuses each of the values in testdata/refused.yaml, and says why.
func TestRefused(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/refused.yaml")
	expect.NoError(t, err)
	var all map[string]struct {
		Values json.RawMessage
		Flags  []string
		Says   []string
	}
	expect.NoError(t, yaml.UnmarshalStrict(text, &all))
	for name, tt := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"template", "listproxy", chart, "--namespace", "proxies", "--kube-version", "1.36.0", "-f", values(t, string(tt.Values))}
			out, err := helm(t, append(args, tt.Flags...)...)
			if err == nil {
				t.Fatalf("rendered:\n%s", out)
			}
			for _, words := range tt.Says {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q is not in: %v", words, err)
				}
			}
		})
	}
}
