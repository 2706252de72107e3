package chart

import (
	"encoding/json"
	"os"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/listproxy/listproxy/test/expect"
)

// TestRefused: Helm refuses each case of values in testdata/refused.yaml, with an error that says why. For example:
//
//	no replicas: {says: ['/replicas', '1'], values: {replicas: 0}}
func TestRefused(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/refused.yaml")
	expect.NoError(t, err)
	var cases map[string]struct {
		Values json.RawMessage
		Flags  []string
		Says   []string // texts that the error must contain
	}
	expect.NoError(t, yaml.UnmarshalStrict(text, &cases))
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"template", "listproxy", chart, "--namespace", "proxies", "--kube-version", "1.36.0"}
			args = append(args, "-f", writeValues(t, string(tt.Values)))
			out, err := helm(t, append(args, tt.Flags...)...)
			if err == nil {
				t.Fatalf("no error; rendered:\n%s", out)
			}
			expect.Says(t, err.Error(), tt.Says...)
		})
	}
}
