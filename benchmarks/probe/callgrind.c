/* A Python extension that counts instructions under `valgrind --tool=callgrind`, in all and by stage of a request.
 *
 *   begin()             begin to count
 *   zero()              forget what was counted
 *   dump(name)          write what was counted since then to callgrind's next output file
 *   stages(classify)    enter a C function of its own whenever the Python code of another stage begins to run
 *
 * classify(file, name) is asked once for each code object: 1 … MOST_STAGES is its stage, 0 says that it belongs to the
 * stage that called it. Until a stage begins, stage 0 runs. Changing from stage A to stage B calls the C function
 * `stage_from_A_to_B`, and callgrind adds up what every call of it cost with all that it called. What stage B itself
 * cost is the sum over all functions that lead to B, less the sum over those that lead away from it.
 *
 * Sharp edge: with a frame evaluation function in place CPython calls every Python function through C, so the count of
 * a request is higher by some per cent than without stages().
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX < 0x030C0000
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#define code_of(frame) ((PyObject *)Py_NewRef((frame)->f_code))
#define request_index _PyEval_RequestCodeExtraIndex
#define get_extra _PyCode_GetExtra
#define set_extra _PyCode_SetExtra
#else
#define code_of(frame) PyUnstable_InterpreterFrame_GetCode(frame)
#define request_index PyUnstable_Eval_RequestCodeExtraIndex
#define get_extra PyUnstable_Code_GetExtra
#define set_extra PyUnstable_Code_SetExtra
#endif
#include <valgrind/callgrind.h>

enum { MOST_STAGES = 15 };

static Py_ssize_t extra;
static PyObject *classify;
static __thread int current; /* the stage that runs in this thread */

typedef struct _PyInterpreterFrame Frame;
typedef PyObject *(*Enter)(PyThreadState *, Frame *, int);

/* Each has a text of its own, or the compiler might make one function of them all; what follows the call keeps it from
 * being made a jump, which callgrind would not see as a call. */
#define ENTER(a, b) \
    __attribute__((noinline)) PyObject *stage_from_##a##_to_##b(PyThreadState *thread, Frame *frame, int thrown) { \
        PyObject *value = _PyEval_EvalFrameDefault(thread, frame, thrown); \
        __asm__ volatile("# from " #a " to " #b ::: "memory"); \
        return value; \
    }
#define EACH(DO, a) \
    DO(a, 0) DO(a, 1) DO(a, 2) DO(a, 3) DO(a, 4) DO(a, 5) DO(a, 6) DO(a, 7) \
    DO(a, 8) DO(a, 9) DO(a, 10) DO(a, 11) DO(a, 12) DO(a, 13) DO(a, 14) DO(a, 15)
#define EVERY(ROW) \
    ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7) \
    ROW(8) ROW(9) ROW(10) ROW(11) ROW(12) ROW(13) ROW(14) ROW(15)
#define ENTERS(a) EACH(ENTER, a)
#define NAME(a, b) stage_from_##a##_to_##b,
#define NAMES(a) { EACH(NAME, a) },

EVERY(ENTERS)
static const Enter enters[MOST_STAGES + 1][MOST_STAGES + 1] = { EVERY(NAMES) };

/* The stage of a code object, kept as stage + 1; 0 where it has none. */
static int ask(PyCodeObject *code) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace); /* a frame may be entered with an exception set */
    PyObject *answer = PyObject_CallFunctionObjArgs(classify, code->co_filename, code->co_qualname, NULL);
    long stage = answer ? PyLong_AsLong(answer) : 0;
    Py_XDECREF(answer);
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
    return stage < 0 || stage > MOST_STAGES ? 0 : (int)stage;
}

static int stage_of(Frame *frame) {
    PyObject *code = code_of(frame);
    void *kept = NULL;
    int stage = 0;
    if (PyCode_Check(code) && get_extra(code, extra, &kept) == 0) {
        if (kept == NULL) {
            set_extra(code, extra, (void *)1L); /* before asking, which runs code as well */
            kept = (void *)(long)(ask((PyCodeObject *)code) + 1);
            set_extra(code, extra, kept);
        }
        stage = (int)(long)kept - 1;
    }
    Py_DECREF(code);
    return stage;
}

static PyObject *evaluate(PyThreadState *thread, Frame *frame, int thrown) {
    int before = current, stage = stage_of(frame);
    if (stage == 0 || stage == before)
        return _PyEval_EvalFrameDefault(thread, frame, thrown);
    current = stage;
    PyObject *value = enters[before][stage](thread, frame, thrown);
    current = before;
    return value;
}

static PyObject *begin(PyObject *self, PyObject *none) {
    CALLGRIND_START_INSTRUMENTATION;
    Py_RETURN_NONE;
}

static PyObject *zero(PyObject *self, PyObject *none) {
    CALLGRIND_ZERO_STATS;
    Py_RETURN_NONE;
}

static PyObject *dump(PyObject *self, PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL)
        return NULL;
    CALLGRIND_DUMP_STATS_AT(text);
    Py_RETURN_NONE;
}

static PyObject *stages(PyObject *self, PyObject *callable) {
    classify = Py_NewRef(callable);
    extra = request_index(NULL);
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), evaluate);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"begin", begin, METH_NOARGS, NULL},
    {"zero", zero, METH_NOARGS, NULL},
    {"dump", dump, METH_O, NULL},
    {"stages", stages, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "bench_callgrind", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_bench_callgrind(void) {
    return PyModule_Create(&module);
}
