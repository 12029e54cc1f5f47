package scenario

import (
	"os"
	"path/filepath"

	"github.com/dynosweep/dynosweep/sweep/scenario/resolved"
)

// relocate finds the files that the role names from the folder of its document.
func (r *Role) relocate(dir string) {
	if r.Timing.Path != "" {
		r.Timing.Path = PathFrom(dir, r.Timing.Path)
	}
	requests := []*AICRequest{&r.Timing.AIC}
	if r.Capacity != nil {
		requests = append(requests, &r.Capacity.Model)
	}
	for _, q := range requests {
		if q.SystemsPath != "" {
			q.SystemsPath = PathFrom(dir, q.SystemsPath)
		}
		if q.Model == "" {
			continue
		}
		q.Model = q.localModel(dir)
	}
}

// localModel is the model's folder, if it is one as seen from dir, or else its name.
func (q *AICRequest) localModel(dir string) string {
	if local := PathFrom(dir, q.Model); q.localConfig(local) != "" {
		return local
	}
	return q.Model
}

// localConfig is the config.json of a model that is a local folder, "" for a name.
func (q *AICRequest) localConfig(model string) string {
	path := filepath.Join(model, "config.json")
	if model == "" {
		return ""
	}
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// request is the model that the role's timing or capacity asks about, zero if none.
func (r *Role) request() AICRequest {
	if r.Capacity != nil {
		return r.Capacity.Model
	}
	return r.Timing.AIC
}

// System is the hardware of the role's GPUs, "" where no document says it.
func (r *Role) System() string { return orText(r.request().System, r.Hardware) }

// modelFiles are the files that a hardware request names: the config.json of a local
// model and the root of the tables; zero where it names none.
type modelFiles struct{ model, systems resolved.FileRef }

// content are the same files without their paths, for identity.
func (m modelFiles) content() modelFiles {
	return modelFiles{m.model.Content(), m.systems.Content()}
}

// refer reads the content of the files that the request names.
func (q *AICRequest) refer(files *Files) (modelFiles, error) {
	var out modelFiles
	var err error
	if q.SystemsPath != "" {
		if out.systems, err = files.ref(q.SystemsPath); err != nil {
			return out, err
		}
	}
	if path := q.localConfig(q.Model); path != "" {
		out.model, err = files.ref(path)
	}
	return out, err
}

// refer reads the content of the files that identify the role: its profile, local
// model and table folders.
func (r *Role) refer(files *Files) error {
	var err error
	if r.Timing.Path != "" {
		if r.profile, err = files.profile(r.Timing.Path); err != nil {
			return err
		}
	}
	q := r.request()
	r.files, err = q.refer(files)
	return err
}
