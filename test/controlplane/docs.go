package controlplane

import (
	"context"
	"path/filepath"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

// ImpersonationRole is the ClusterRole of docs/rbac-impersonation.yaml: what an account needs that
// states the users of client certificates.
const ImpersonationRole = "listproxy-impersonation"

// ApplyDocs creates what a manifest in docs/ of the repository says, as [Admin], so that tests run
// with what an operator is told to install.
func (cp *ControlPlane) ApplyDocs(ctx context.Context, name string) error {
	root, err := binaries.RepoRoot()
	if err != nil {
		return err
	}
	_, err = cp.kubectl(ctx, Admin, nil, "apply", "-f", filepath.Join(root, "docs", name))
	return err
}
