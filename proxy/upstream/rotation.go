package upstream

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// filesEvery is the time between two looks at the files of the client configuration.
const filesEvery = 5 * time.Second

// Run reloads the files of the client configuration until ctx ends. As long as they cannot be read
// or used, their last content counts.
func (t *Transports) Run(ctx context.Context, log *slog.Logger) {
	problem := ""
	wait.UntilWithContext(ctx, func(context.Context) {
		switch changed, err := t.update(); {
		case err != nil && err.Error() != problem:
			problem = err.Error()
			log.Warn("a CA or client certificate for kube-apiserver cannot be used: the last one that could stays in use",
				"error", err)
		case err == nil:
			problem = ""
			if changed {
				log.Info("the CA or client certificate for kube-apiserver has changed: " +
					"callers' requests use the new one from now on")
			}
		}
	}, filesEvery)
}

// update replaces the transports if the content of the files has changed, or there are none yet.
func (t *Transports) update() (changed bool, err error) {
	cfg, err := withFiles(t.cfg)
	if err != nil {
		return false, err
	}
	before := t.current.Load()
	if before != nil && before.isMadeOf(cfg) {
		return false, nil
	}
	made, err := newTransportSets(cfg, t.base, t.impersonates)
	if err != nil {
		return false, err
	}
	t.current.Store(made)
	if before != nil {
		before.closeIdle()
	}
	return true, nil
}

// withFiles returns cfg with the content of its TLS files in place of their names. A file may be
// empty while it is written, and without a CA the system's would be trusted, so that is an error.
func withFiles(cfg *rest.Config) (*rest.Config, error) {
	cfg = rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, err
	}
	if cfg.CAFile != "" && len(cfg.CAData) == 0 || cfg.CertFile != "" && len(cfg.CertData) == 0 ||
		cfg.KeyFile != "" && len(cfg.KeyData) == 0 {
		return nil, errors.New("the file of the CA, the client certificate or its key is empty")
	}
	cfg.CAFile, cfg.CertFile, cfg.KeyFile = "", "", ""
	return cfg, nil
}

// isMadeOf reports whether the sets were made of a configuration with the same content of files.
func (s *transportSets) isMadeOf(cfg *rest.Config) bool {
	return bytes.Equal(s.config.CAData, cfg.CAData) && bytes.Equal(s.config.CertData, cfg.CertData) &&
		bytes.Equal(s.config.KeyData, cfg.KeyData)
}
