package operators

import (
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestFlowSchema: once docs/flow-schema.yaml is applied, kube-apiserver classifies the requests of the chart's service account
// by this FlowSchema. (cp is the control plane of all tests here, and direct asks it as the admin.)
func TestFlowSchema(t *testing.T) {
	// As in flow-schema.yaml.
	const (
		schemaName  = "listproxy"
		namespace   = "listproxy"
		accountName = "listproxy"
	)
	expect.NoError(t, cp.ApplyDocs(t.Context(), "flow-schema.yaml"))
	schema, err := direct.Get(t.Context(), "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/"+schemaName)
	expect.NoError(t, err)

	expect.NoError(t, direct.Ensure(t.Context(), "/api/v1/namespaces", kinds.Namespace(namespace)))
	token, err := cp.CreateServiceAccountToken(t.Context(), namespace, accountName)
	expect.NoError(t, err)
	config := cp.RESTConfig(controlplane.Anonymous)
	config.BearerToken = token
	account := ask.MustNew(t, config, patience)

	for _, target := range []string{"/api/v1/pods?limit=1", "/version"} {
		poll.Until(t, patience, target+" is classified by the FlowSchema", func() bool {
			answer, err := account.Get(t.Context(), target)
			expect.NoError(t, err)
			return answer.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") == schema.Meta().UID
		})
	}
}
