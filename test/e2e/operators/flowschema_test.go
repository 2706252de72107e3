package operators

import (
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestFlowSchema: kube-apiserver classifies the requests of the chart's account by the FlowSchema of docs/flow-schema.yaml.
func TestFlowSchema(t *testing.T) {
	const name = "listproxy" // of the schema, the account and its namespace
	expect.NoError(t, cp.ApplyDocs(t.Context(), "flow-schema.yaml"))
	expect.NoError(t, direct.Ensure(t.Context(), "/api/v1/namespaces", kinds.Namespace(name)))
	token, err := cp.CreateServiceAccountToken(t.Context(), name, name)
	expect.NoError(t, err)
	schema, err := direct.Get(t.Context(), "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/"+name)
	expect.NoError(t, err)
	config := cp.RESTConfig(controlplane.Anonymous)
	config.BearerToken = token
	account := ask.MustNew(t, config, patience)
	for _, target := range []string{"/api/v1/pods?limit=1", "/version"} {
		poll.Until(t, patience, target+" is classified by the FlowSchema", func() bool {
			got, err := account.Get(t.Context(), target)
			expect.NoError(t, err)
			return got.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") == schema.Meta().UID
		})
	}
}
